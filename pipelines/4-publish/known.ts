import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { RelatedParties, type Thief } from "../3-grade/related.ts";
import { type ListingFacts, toListingFacts } from "../published/endpoint.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { RunHeader } from "../record/card.ts";
import { hourOf } from "../record/commitment.ts";
import { partitionOf } from "../record/ids.ts";
import { BadLeaf, type Draft } from "./leaves.ts";

/**
 * Returns the drafts whose content the log does not hold yet. So a caller may publish one fact again, after a crash or
 * from a second machine, and the log holds it once.
 */
export function unknownDrafts(fold: PublishedFold, drafts: readonly Draft[]): Draft[] {
  // Of several drafts about one thing in one call the last one counts, in its place.
  const byThing = new Map<unknown, Draft>();
  for (const draft of drafts) {
    const thing = subjectOf(draft) ?? draft;
    byThing.delete(thing);
    byThing.set(thing, draft);
  }
  return [...byThing.values()].filter((draft) => !isKnown(fold, draft));
}

/** Drafts of listing leaves for `listed`, and of delisting leaves for `unlisted`, which no source names any more. */
export const listingDrafts = (listed: readonly ListingFacts[], unlisted: readonly string[]): Draft[] => [
  ...listed.map((listing): Draft => ({ kind: "listing", ...toListingFacts(listing) })),
  ...unlisted.map((cap): Draft => ({ kind: "delisting", capability_id: cap })),
];

/** Name of the subject of a draft, by which drafts replace each other; null for a draft that replaces none. */
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

/** A correction or dispute by its own id, a reinstatement by the correction that it takes back. */
export const correctionId = (body: Record<string, unknown>): string => String(body.id ?? body.correction);

function isKnown(fold: PublishedFold, draft: Draft): boolean {
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
      refuseWrongSalt(fold, draft);
      // A day that was committed the evening before stands there already when the salt of its eve can be opened.
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

/** An older leaf without `offers` is not told again only because nothing is offered. */
const isSameListing = (a: ListingFacts, b: ListingFacts): boolean =>
  canonicalText({ ...a, offers: a.offers ?? [] }) === canonicalText({ ...b, offers: b.offers ?? [] });

/** A salt that does not open its day would stand in the log for good as proof against us. @throws BadLeaf */
function refuseWrongSalt(fold: PublishedFold, draft: Draft & { kind: "schedule" }): void {
  const opened = draft.opens && fold.schedules.get(draft.opens.day);
  if (!opened || sha256hex(Buffer.from(draft.opens!.salt, "hex")) === opened.salt_hash) return;
  throw new BadLeaf(draft, `the salt does not open ${draft.opens!.day}`);
}

/** Rows of one `kin` leaf, at most: forty of the longest payees and domains stay below {@link MAX_LEAF_BYTES}. */
const ROWS_A_LEAF = 40;

/**
 * Returns the leaves by which a run changes the table of related parties. In the partitions that the run has read, the
 * table becomes the run's thieves, except for rows that a run of a later moment has changed.
 * @returns none when the table is this one already
 */
export function relatedPartyDrafts(
  { relatedParties }: Pick<PublishedFold, "relatedParties">,
  run: Pick<RunHeader, "now" | "positions" | "thieves">,
  partitions: number,
): (Draft & { kind: "kin" })[] {
  if (!run.thieves) return [];
  const read = new Set(Object.values(run.positions).flatMap((offsets) => Object.keys(offsets)));
  const isTold = (cap: string): boolean =>
    read.has(String(partitionOf(cap, partitions))) && relatedParties.changedAt(cap) <= run.now;
  const table = new Map(relatedParties.table.map((thief) => [thief.cap, thief]));
  const thieves = new Set(run.thieves.map(({ cap }) => cap));
  const remove = [...table.keys()].filter((cap) => isTold(cap) && !thieves.has(cap));
  const add = run.thieves.filter((thief) => isTold(thief.cap) && !isSameThief(thief, table.get(thief.cap)));
  const rows: (string | Thief)[] = [...remove, ...add];
  for (const cap of remove) table.delete(cap);
  for (const thief of add) table.set(thief.cap, thief);
  const { sha256 } = new RelatedParties([...table.values()]);
  const drafts: (Draft & { kind: "kin" })[] = [];
  for (let at = 0; at < rows.length; at += ROWS_A_LEAF) {
    const some = rows.slice(at, at + ROWS_A_LEAF);
    drafts.push({
      kind: "kin",
      computed_at: run.now,
      kin: at + ROWS_A_LEAF < rows.length ? null : sha256,
      add: some.filter((row) => typeof row !== "string").map((thief) => ({ ...thief })),
      remove: some.filter((row) => typeof row === "string"),
    });
  }
  return drafts;
}

const isSameThief = (a: Thief, b: Thief | undefined): boolean => a.pay_to === b?.pay_to && a.domain === b?.domain;

export type CommitmentDraft = Draft & { kind: "commitment" };

interface Row {
  cap: string;
  sha256: string;
  t: Date;
}

/**
 * Commitments of the lake that the tree does not hold and whose hour is over, by hour and then by hash: the order of the
 * log, or a moment finer than the hour, would lead to the payment on the chain. What the tree holds leaves the lake's
 * short list here, so a turn costs what is new; a lake that was rebuilt looks at all of them once.
 * @param fold what is published, as far as this process has followed it
 */
export async function openCommitments(
  lake: Pick<Statements, "all" | "run">,
  fold: PublishedFold,
  now: Date,
): Promise<CommitmentDraft[]> {
  const rows = await lake.all<Row>(sql("queries/commitments:open"), { before: hourOf(now) });
  const isKnown = ({ sha256 }: Row): boolean => fold.commitments.has(sha256);
  const known = rows.filter(isKnown).map(({ sha256 }) => sha256);
  if (known.length > 0) await lake.run(sql("queries/commitments:published"), { known: JSON.stringify(known) });
  return rows
    .filter((row) => !isKnown(row))
    .map(({ cap, sha256, t }) => ({ kind: "commitment", capability_id: cap, moment: hourOf(t), sha256 }));
}

export type ReceiptDraft = Draft & { kind: "receipt" };

/** Receipts that one run carries at most; the others wait for the next one. */
const RECEIPTS_A_RUN = 10_000;

/**
 * Receipts of the lake that the tree does not hold. Like commitments, those that the tree holds leave the lake's list here.
 * @param fold what is published, as far as this process has followed it
 */
export async function openReceipts(
  lake: Pick<Statements, "all" | "run">,
  fold: PublishedFold,
): Promise<ReceiptDraft[]> {
  const rows = await lake.all<Pick<Row, "sha256">>(sql("queries/receipts:open"), { most: RECEIPTS_A_RUN });
  const known = rows.map(({ sha256 }) => sha256).filter((sha256) => fold.receipts.has(sha256));
  if (known.length > 0) await lake.run(sql("queries/receipts:published"), { known: JSON.stringify(known) });
  return rows.filter(({ sha256 }) => !fold.receipts.has(sha256)).map(({ sha256 }) => ({ kind: "receipt", sha256 }));
}
