import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type NonDeliveringSeller, RelatedParties } from "../3-grade/related.ts";
import { type ListingFacts, toListingFacts } from "../published/endpoint.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { RunHeader } from "../record/card.ts";
import { utcHourOf } from "../record/commitment.ts";
import { partitionOf } from "../record/ids.ts";
import { BadLeaf, type Draft } from "./leaves.ts";

/**
 * Returns the drafts (log entries without a position yet) whose content the log does not hold yet. Therefore a caller
 * may publish a fact again, after a crash or from a second machine, and the log holds it once.
 */
export function newDraftsOf(fold: PublishedFold, drafts: readonly Draft[]): Draft[] {
  // If one call has several drafts about one subject, only the last is published.
  const bySubject = new Map<unknown, Draft>();
  for (const draft of drafts) {
    const subject = subjectOf(draft) ?? draft;
    bySubject.delete(subject);
    bySubject.set(subject, draft);
  }
  return [...bySubject.values()].filter((draft) => !isPublished(fold, draft));
}

/**
 * Makes drafts of listing leaves for the endpoints in `listed`, and of delisting leaves for those in `unlisted`, which
 * no source lists any more.
 */
export const listingDrafts = (listed: readonly ListingFacts[], unlisted: readonly string[]): Draft[] => [
  ...listed.map((listing): Draft => ({ kind: "listing", ...toListingFacts(listing) })),
  ...unlisted.map((cap): Draft => ({ kind: "delisting", capability_id: cap })),
];

/**
 * Returns a text that identifies what a draft is about: of several drafts with one such text only the last is
 * published. null: the draft replaces no other.
 */
function subjectOf(draft: Draft): string | null {
  switch (draft.kind) {
    case "listing":
    case "delisting":
      return `listed ${draft.capability_id}`;
    case "correction":
    case "dispute":
    case "reinstated":
      return `${draft.kind} ${draft.capability_id} ${correctionId(draft.body)}`;
    case "schedule":
      return `schedule ${draft.day}`;
    case "commitment":
      return `commitment ${draft.sha256}`;
    case "receipt":
      return `receipt ${draft.sha256}`;
    default:
      return null;
  }
}

/**
 * Identifies a correction or dispute by its own id, and a reinstatement by the id of the correction that it revokes.
 */
export const correctionId = (body: Record<string, unknown>): string => String(body.id ?? body.correction);

function isPublished(fold: PublishedFold, draft: Draft): boolean {
  switch (draft.kind) {
    case "listing": {
      const { listed = false, listing = null } = fold.caps.get(draft.capability_id) ?? {};
      return listed && listing !== null && isSameListing(listing, toListingFacts(draft));
    }
    case "delisting":
      return !fold.caps.get(draft.capability_id)?.listed;
    case "correction":
    case "dispute":
    case "reinstated":
      return !!fold.caps
        .get(draft.capability_id)
        ?.corrections.some((one) => one.kind === draft.kind && correctionId(one.body) === correctionId(draft.body));
    case "schedule":
      checkSalt(fold, draft);
      // A schedule published on the evening before its day is published again once the salt of the day before can be
      // revealed.
      return fold.schedules.has(draft.day) && fold.schedules.get(draft.opens?.day ?? "")?.salt !== null;
    case "commitment":
      return fold.commitments.has(draft.sha256);
    case "receipt":
      return fold.receipts.has(draft.sha256);
    case "keys":
      return fold.keys !== null && fold.keys.n >= draft.n;
    case "index":
      return fold.index !== null && fold.index.tree_size >= draft.tree_size;
    default:
      return false;
  }
}

/** Compares listings. An older leaf without `offers` equals one with an empty list, so it is not published again. */
const isSameListing = (a: ListingFacts, b: ListingFacts): boolean =>
  canonicalText({ ...a, offers: a.offers ?? [] }) === canonicalText({ ...b, offers: b.offers ?? [] });

/**
 * Checks that a revealed salt matches its published hash, since a wrong salt could never be removed from the log.
 * @throws BadLeaf
 */
function checkSalt(fold: PublishedFold, draft: Draft & { kind: "schedule" }): void {
  const schedule = draft.opens && fold.schedules.get(draft.opens.day);
  if (!schedule || sha256hex(Buffer.from(draft.opens!.salt, "hex")) === schedule.salt_hash) return;
  throw new BadLeaf(draft, `the salt does not open ${draft.opens!.day}`);
}

/**
 * Largest number of rows of one `kin` leaf (a change of the table of related parties). Forty rows with the longest
 * payees and domains stay below {@link MAX_LEAF_BYTES}.
 */
const ROWS_PER_LEAF = 40;

/**
 * Returns the leaves by which a run (the result of one grading) changes the table of related parties (payees and
 * domains that took money). `run.thieves` replaces the table's rows of all endpoints in the partitions that the run
 * has read, except rows that a later run has changed.
 * @returns no leaves when the table does not change
 */
export function relatedPartyDrafts(
  { relatedParties }: Pick<PublishedFold, "relatedParties">,
  run: Pick<RunHeader, "now" | "positions" | "thieves">,
  partitions: number,
): (Draft & { kind: "kin" })[] {
  if (!run.thieves) return [];
  const readPartitions = new Set(Object.values(run.positions).flatMap((offsets) => Object.keys(offsets)));
  const isReplaced = (cap: string): boolean =>
    readPartitions.has(String(partitionOf(cap, partitions))) && relatedParties.changedAt(cap) <= run.now;
  const table = new Map(relatedParties.table.map((seller) => [seller.cap, seller]));
  const nonDelivering = new Set(run.thieves.map(({ cap }) => cap));
  const removedCaps = [...table.keys()].filter((cap) => isReplaced(cap) && !nonDelivering.has(cap));
  const addedSellers = run.thieves.filter(
    (seller) => isReplaced(seller.cap) && !isSameSeller(seller, table.get(seller.cap)),
  );
  const rows: (string | NonDeliveringSeller)[] = [...removedCaps, ...addedSellers];
  for (const cap of removedCaps) table.delete(cap);
  for (const seller of addedSellers) table.set(seller.cap, seller);
  const { sha256 } = new RelatedParties([...table.values()]);
  const drafts: (Draft & { kind: "kin" })[] = [];
  for (let start = 0; start < rows.length; start += ROWS_PER_LEAF) {
    const leafRows = rows.slice(start, start + ROWS_PER_LEAF);
    drafts.push({
      kind: "kin",
      computed_at: run.now,
      kin: start + ROWS_PER_LEAF < rows.length ? null : sha256,
      add: leafRows.filter((row) => typeof row !== "string").map((seller) => ({ ...seller })),
      remove: leafRows.filter((row) => typeof row === "string"),
    });
  }
  return drafts;
}

const isSameSeller = (a: NonDeliveringSeller, b: NonDeliveringSeller | undefined): boolean =>
  a.pay_to === b?.pay_to && a.domain === b?.domain;

export type CommitmentDraft = Draft & { kind: "commitment" };

interface CommitmentRow {
  cap: string;
  sha256: string;
  /** When the commitment was observed; its hour is published. */
  t: Date;
}

/**
 * Returns the commitments in the lake (the local database) that are not published yet and whose hour is over. A
 * commitment is the salted hash of a bought call that its buyer has not published. They are sorted by hour and then
 * by hash, since the order of the event log or a more precise time could identify the payment on the chain. Published
 * commitments are removed from the lake's list, so that a call reads only new ones; after a rebuild of the lake the
 * first call reads all.
 * @param fold the state of the published leaves that this process has read
 */
export async function readUnpublishedCommitments(
  lake: Pick<Statements, "all" | "run">,
  fold: PublishedFold,
  now: Date,
): Promise<CommitmentDraft[]> {
  const rows = await lake.all<CommitmentRow>(sql("queries/commitments:open"), { before: utcHourOf(now) });
  const isPublishedRow = ({ sha256 }: CommitmentRow): boolean => fold.commitments.has(sha256);
  const publishedHashes = rows.filter(isPublishedRow).map(({ sha256 }) => sha256);
  if (publishedHashes.length > 0)
    await lake.run(sql("queries/commitments:published"), { known: JSON.stringify(publishedHashes) });
  return rows
    .filter((row) => !isPublishedRow(row))
    .map(({ cap, sha256, t }) => ({ kind: "commitment", capability_id: cap, moment: utcHourOf(t), sha256 }));
}

export type ReceiptDraft = Draft & { kind: "receipt" };

/** Largest number of receipts in one run. Further receipts wait for the next run. */
const RECEIPTS_PER_RUN = 10_000;

/**
 * Returns the hashes of issued receipts that are in the lake's list and not published yet. Removes published ones
 * from that list.
 * @param fold the state of the published leaves that this process has read
 */
export async function readUnpublishedReceipts(
  lake: Pick<Statements, "all" | "run">,
  fold: PublishedFold,
): Promise<ReceiptDraft[]> {
  const rows = await lake.all<Pick<CommitmentRow, "sha256">>(sql("queries/receipts:open"), { most: RECEIPTS_PER_RUN });
  const publishedHashes = rows.map(({ sha256 }) => sha256).filter((sha256) => fold.receipts.has(sha256));
  if (publishedHashes.length > 0)
    await lake.run(sql("queries/receipts:published"), { known: JSON.stringify(publishedHashes) });
  return rows.filter(({ sha256 }) => !fold.receipts.has(sha256)).map(({ sha256 }) => ({ kind: "receipt", sha256 }));
}
