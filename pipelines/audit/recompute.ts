import { canonicalText } from "../../infra/canonical.ts";
import { gradeRows } from "../3-grade/pure.ts";
import { NO_RELATED_PARTIES_SHA256, type NonDeliveringSeller, RelatedParties } from "../3-grade/related.ts";
import { isBehind, nextCardsOf } from "../4-publish/take-lines.ts";
import { parseJson, Unproven } from "../published/errors.ts";
import { type EvidenceFile, fetchFile, readProvenLines } from "../published/files.ts";
import type { Source } from "../published/source.ts";
import { MISSING_MEMBER_TEXT, type SignedCard, type UnsignedCard } from "../record/card.ts";
import { parseEvidenceLine, RelatedPartiesLine } from "../record/evidence.ts";
import { bucketOf } from "../record/ids.ts";
import { cardTime, type GradeLeaf } from "../record/leaf.ts";
import { addDays, dayOf, isRfc3339 } from "../record/time.ts";
import { registrableDomain } from "../record/url.ts";
import { FIRST_VERIFIER_VERSION } from "../record/verifier-version.ts";
import { EndpointEvidence } from "./as-of.ts";
import { problemOf } from "./findings.ts";
import { type CardGroup, type EndpointSelector, type GatheredRecord, gather } from "./gather.ts";

/**
 * The result for one published card; `tier` is the card's depth of checks, `band` its letter. `ok`: the recomputed
 * card equals it in every byte except the signature, and so do digest of the inputs, sentence (`why`) and raw letter
 * in its leaf. `pending`: its evidence is not published yet. `not run`: its evidence cannot be graded, or is more than
 * is held at once; or the recomputed card differs, but this proves nothing, since objects on which it may depend are
 * broken or missing, or the published card does not state when it was computed.
 */
export interface CardVerdict {
  capability_id: string;
  url: string | null;
  /** Log position of the card's leaf. */
  leaf: number;
  tier: string;
  band: string;
  /** null: the card has no such member. */
  computed_at: string | null;
  verdict: "ok" | "pending" | "differs" | "not run";
  /** Why the verdict is `pending` or `not run`. */
  says?: string;
  difference?: Difference;
}

export interface RecomputeSummary {
  tree_size: number;
  /** Newest closed day (whose evidence is published), "" before the first. */
  closed_to: string;
  endpoints: number;
  ok: number;
  pending: number;
  differs: number;
  not_run: number;
}

/**
 * Recomputes the cards of some endpoints from public objects alone, without a database: signatures and positions in
 * the log, the rows that each card was computed from, table of related parties, letter, hold (the rule that delays a
 * rise) and sentence (publication.md, Auditor).
 * @param head a verified checkpoint
 * @param onVerdict called for every card, in order of capability and log
 * @throws BadUrl, Unproven, MissingObject, Tampered, Oversized, SourceDown
 */
export async function recompute(
  source: Source,
  head: { size: number; root: Buffer },
  wanted: EndpointSelector,
  onVerdict: (verdict: CardVerdict) => void,
): Promise<RecomputeSummary> {
  return recomputeGathered(source, await gather(source, head, wanted), onVerdict);
}

/**
 * Largest number of bytes of evidence lines that are held at once. They take some three times as much memory. If the
 * endpoints of a bucket have more, the bucket's files are read again for each half of these endpoints. If one endpoint
 * has more, its cards are not run.
 */
export const MAX_EVIDENCE_BYTES = 128 * 1024 * 1024;

/** Thrown when the evidence lines of some endpoints are more than may be held at once. */
class TooMuchEvidence extends Error {}

/**
 * Recomputes cards from the leaves that {@link gather} has read.
 * @param continuesAfterBroken true: a broken evidence file does not end the audit. Cards that are recomputed without
 * the file and agree are proven; cards that differ and may need the file count as `not run`
 * @param maxBytes of evidence lines that are held at once
 */
export async function recomputeGathered(
  source: Source,
  gathered: GatheredRecord,
  onVerdict: (verdict: CardVerdict) => void,
  continuesAfterBroken = false,
  maxBytes = MAX_EVIDENCE_BYTES,
): Promise<RecomputeSummary> {
  const broken: BrokenObject[] = gathered.hole === null ? [] : [{ what: "leaves before it", hole: gathered.hole }];
  /** Returns a handler for the error of a file. The handler records which object is broken, or throws. */
  const handleBroken = (what: Omit<BrokenObject, "what">) => (error: unknown) => {
    const problem = continuesAfterBroken ? problemOf(error) : null;
    if (!problem) throw error;
    // A file may be read more than once.
    const isKnown = broken.some((one) => one.what === problem.key && one.bucket === what.bucket);
    if (!isKnown) broken.push({ what: problem.key, ...what });
  };
  const tables = await readRelatedPartyTables(source, gathered.tableFiles, handleBroken, gathered.tableHashes);
  for (const [name, table] of gathered.relatedParties.tables(gathered.tableHashes))
    tables.set(name, new RelatedParties(table));
  const counts = { ok: 0, pending: 0, differs: 0, "not run": 0 };
  const byBucket = [...gathered.groups.keys()].sort((a, b) => bucketOf(a) - bucketOf(b) || (a < b ? -1 : 1));
  for (let at = 0; at < byBucket.length; ) {
    const bucket = bucketOf(byBucket[at]!);
    let end = at;
    while (end < byBucket.length && bucketOf(byBucket[end]!) === bucket) end++;
    const batches = [byBucket.slice(at, end)];
    for (let caps = batches.pop(); caps; caps = batches.pop()) {
      const evidenceByCap = await readEvidenceOf(source, gathered, bucket, new Set(caps), handleBroken, maxBytes);
      if (!evidenceByCap && caps.length > 1) {
        const middle = caps.length >> 1;
        batches.push(caps.slice(middle), caps.slice(0, middle));
        continue;
      }
      for (const cap of caps) {
        for (const cardVerdict of verdictsOf(cap, gathered, evidenceByCap?.get(cap) ?? null, tables)) {
          const verdict = withBrokenInputs(cardVerdict, bucket, broken);
          counts[verdict.verdict]++;
          onVerdict(verdict);
        }
      }
    }
    at = end;
  }
  const { "not run": not_run, ...otherCounts } = counts;
  return {
    tree_size: gathered.size,
    closed_to: gathered.evidence.newest,
    endpoints: byBucket.length,
    ...otherCounts,
    not_run,
  };
}

/** An object or leaves that cannot be read, and which cards may depend on them. */
interface BrokenObject {
  what: string;
  /** Position of the first leaf that could not be read. Every card at a greater position may depend on it. */
  hole?: number;
  /** Day of a broken file. */
  day?: string;
  /** Bucket (share of the endpoints) of a broken file of rows; absent for a file of tables of related parties. */
  bucket?: number;
}

type HandleBroken = (what: Omit<BrokenObject, "what">) => (error: unknown) => void;
const rethrow: HandleBroken = () => (error) => {
  throw error;
};

/**
 * Changes `differs` to `not run` for a card that may depend on something broken. Such a difference proves nothing
 * against the record.
 */
function withBrokenInputs(card: CardVerdict, bucket: number, broken: readonly BrokenObject[]): CardVerdict {
  if (card.verdict !== "differs") return card;
  const day = card.computed_at?.slice(0, 10);
  const brokenInput = broken.find((one) => {
    if (one.hole !== undefined) return card.leaf > one.hole;
    if (one.bucket === undefined) return card.difference?.field === "inputs.kin";
    return one.bucket === bucket && (day === undefined || one.day! <= day);
  });
  if (!brokenInput) return card;
  const { difference: _, ...rest } = card;
  return { ...rest, verdict: "not run", says: `${brokenInput.what} is broken or gone` };
}

/**
 * Reads the evidence of these endpoints from all files of their bucket, oldest first.
 * @returns null when their lines have more than `maxBytes`
 */
async function readEvidenceOf(
  source: Source,
  { rows }: GatheredRecord,
  bucket: number,
  caps: ReadonlySet<string>,
  handleBroken: HandleBroken,
  maxBytes: number,
): Promise<Map<string, EndpointEvidence> | null> {
  const evidenceByCap = new Map([...caps].map((cap) => [cap, new EndpointEvidence()]));
  let heldBytes = 0;
  const readLines = async (file: EvidenceFile): Promise<void> => {
    let hasInvalidLine = false;
    await readProvenLines(await fetchFile(source, file), file, (bytes) => {
      const line = parseEvidenceLine(parseJson(bytes));
      hasInvalidLine ||= line === null;
      const evidence = line && evidenceByCap.get(line.capability_id);
      if (!evidence) return;
      heldBytes += bytes.length;
      if (heldBytes > maxBytes) throw new TooMuchEvidence();
      evidence.add(line);
    });
    if (hasInvalidLine) throw new Unproven(file.key, "samples and amendments", "a line that is neither");
  };
  try {
    for (const file of rows.get(bucket) ?? []) await readLines(file).catch(handleBroken({ day: file.day, bucket }));
  } catch (error) {
    if (error instanceof TooMuchEvidence) return null;
    throw error;
  }
  return evidenceByCap;
}

/** Yields the verdict on each card of an endpoint. @param evidence null when it is more than may be held at once */
function* verdictsOf(
  cap: string,
  gathered: GatheredRecord,
  evidence: EndpointEvidence | null,
  tables: ReadonlyMap<string, RelatedParties>,
): Generator<CardVerdict> {
  const url = gathered.urls.get(cap) ?? null;
  for (const { leaves: packedLeaves, before } of gathered.groups.get(cap) ?? []) {
    const leaves = packedLeaves.map((leaf) => leaf.unpack());
    const results = evidence
      ? tryEvaluate(leaves, () => evaluate(cap, leaves, before, gathered, evidence, tables))
      : leaves.map((): CardResult => ({ verdict: "not run", says: "its evidence is more than can be held at once" }));
    for (const [i, { index, card }] of leaves.entries()) {
      const { tier, band, computed_at = null } = card;
      const result = results[i]!;
      // Without a time of its own, the card was recomputed as of its leaf's time, which may be later.
      const isUnknown = result.verdict === "differs" && isUntimed(card);
      const known: CardResult = isUnknown ? { verdict: "not run", says: UNTIMED_TEXT } : result;
      yield { capability_id: cap, url, leaf: index, tier, band, computed_at, ...known };
    }
  }
}

type CardResult = Pick<CardVerdict, "verdict" | "says" | "difference">;

/**
 * Returns whether a card does not state when it was computed. Only a card of the form svc.scorecard.v1 may leave out
 * `computed_at`: a card of v2 without this member differs from the recomputed one.
 */
const isUntimed = ({ schema, computed_at }: SignedCard): boolean =>
  schema === "svc.scorecard.v1" && computed_at === undefined;
const UNTIMED_TEXT = `computed_at is ${MISSING_MEMBER_TEXT}`;

/**
 * Evaluates cards; returns `not run` for all of them if their evidence has values that cannot be graded, such as a text
 * with a lone surrogate, which has no RFC 8785 form. Such values must not end the audit.
 */
function tryEvaluate(leaves: readonly GradeLeaf[], evaluateAll: () => CardResult[]): CardResult[] {
  try {
    return evaluateAll();
  } catch (error) {
    const says = `its evidence cannot be graded: ${(error as Error).message.slice(0, MAX_SHOWN_LENGTH)}`;
    return leaves.map(() => ({ verdict: "not run", says }));
  }
}

/** Returns the registrable domain of an endpoint's url; null without a valid url. */
function domainOf(url: string | undefined): string | null {
  try {
    return url === undefined ? null : registrableDomain(url);
  } catch {
    return null;
  }
}

/**
 * Returns a difference if cards were computed no later than the endpoint's previous cards, or their grading run had
 * read less than the previous cards and the published corrections; null otherwise. No publisher may publish such cards:
 * they could leave out rows that the previous cards counted.
 */
function stepBackOf(
  computedAt: string,
  positions: Readonly<Record<string, number>>,
  before: CardGroup["before"],
): Difference | null {
  if (computedAt <= before.computedAt)
    return { field: "card.computed_at", expected: `a time after ${before.computedAt}`, got: computedAt };
  if (!isBehind(positions, before)) return null;
  const expected = `all that the cards before it and published corrections had read: ${shorten(before.positions)}`;
  return { field: "inputs.positions", expected, got: shorten(positions) };
}

/** Compares the cards of one group with what is recomputed from the evidence. */
function evaluate(
  cap: string,
  leaves: readonly GradeLeaf[],
  before: CardGroup["before"],
  { evidence: closedEvidence, urls, hole }: GatheredRecord,
  evidence: EndpointEvidence,
  tables: ReadonlyMap<string, RelatedParties>,
): CardResult[] {
  const { day, inputs, at, card: firstCard } = leaves[0]!;
  const sameResultForAll = (found: CardResult): CardResult[] => leaves.map(() => found);
  const computedAt = cardTime(leaves[0]!);
  if (!isRfc3339(computedAt)) {
    const difference = { field: "card.computed_at", expected: "a time", got: computedAt.slice(0, MAX_SHOWN_LENGTH) };
    return sameResultForAll({ verdict: "differs", difference });
  }
  const stepBack = stepBackOf(computedAt, inputs.positions, before);
  if (stepBack) return sameResultForAll({ verdict: "differs", difference: stepBack });
  const now = new Date(computedAt);
  // A card of a later day than its leaf differs. Otherwise it could name a day far ahead and stay pending for ever.
  if (dayOf(now) > dayOf(new Date(at))) {
    const difference = { field: "card.computed_at", expected: `a day up to ${at}`, got: computedAt };
    return sameResultForAll({ verdict: "differs", difference });
  }
  if (dayOf(now) > closedEvidence.newest) {
    const says = isUntimed(firstCard) ? UNTIMED_TEXT : `the evidence of ${dayOf(now)} is not published yet`;
    return sameResultForAll({ verdict: "pending", says });
  }
  const table = tables.get(inputs.kin);
  if (!table) {
    // The evidence file with this table is published, at the latest, when the day after the day of the leaf is closed.
    // Until then the card is pending, unless a file that must contain this table was published without it.
    const isDue = hole === null && closedEvidence.newest > dayOf(new Date(at));
    if (!isDue && closedEvidence.relatedParties.get(day)?.has(inputs.kin))
      return sameResultForAll({
        verdict: "pending",
        says: `the table of related parties ${inputs.kin} is not published yet`,
      });
    return sameResultForAll({
      verdict: "differs",
      difference: { field: "inputs.kin", expected: "a published table", got: inputs.kin },
    });
  }
  const rows = evidence.endpointAsOf(cap, inputs.positions, domainOf(urls.get(cap)));
  const line = gradeRows(rows, table, now, firstCard.verifier_version ?? FIRST_VERIFIER_VERSION);
  const cards = nextCardsOf(before, { now: computedAt }, line, []);
  const expectedCards = cards.map(({ runCard, card, why }) => ({
    day: dayOf(now),
    inputs: { ...inputs, digest: line.inputs_digest },
    raw_band: runCard.raw_band,
    headline: runCard.headline,
    why,
    card,
  }));
  if (expectedCards.length !== leaves.length) {
    const tiers = (cardList: readonly { card: { tier: string } }[]) => cardList.map(({ card }) => card.tier).join(", ");
    return sameResultForAll({
      verdict: "differs",
      difference: { field: "tiers", expected: tiers(expectedCards), got: tiers(leaves) },
    });
  }
  return leaves.map((leaf, i): CardResult => {
    const { signing_key_id: _, canonicalization: __, signature: ___, ...card } = leaf.card;
    const got = {
      day: leaf.day,
      inputs: leaf.inputs,
      raw_band: leaf.raw_band,
      headline: leaf.headline,
      why: leaf.why,
      card,
    };
    const expected = { ...expectedCards[i]!, card: membersOf(expectedCards[i]!.card, card) };
    const inputsDifference = firstDifference(expected.inputs, got.inputs, "inputs");
    const difference = inputsDifference ?? firstDifference(expected, got);
    if (!difference) return { verdict: "ok" };
    // In a record made in simulated time, a card may have used records of the day after its own. Until that day is
    // closed, the card is pending.
    const isNextDayOpen = addDays(dayOf(now), 1) > closedEvidence.newest;
    return isNextDayOpen
      ? { verdict: "pending", says: "the next day is not closed yet" }
      : { verdict: "differs", difference };
  });
}

/**
 * Returns the members of our card that are compared with the published one. The version of our checks is copied from
 * the published card, since it is an input and not a result. If the published card has the older form svc.scorecard.v1,
 * only its members are compared.
 */
function membersOf(ownCard: UnsignedCard, published: Omit<SignedCard, "signature">): Partial<SignedCard> {
  const { verifier_version, schema } = published;
  const comparedCard = { ...ownCard, verifier_version };
  if (schema !== "svc.scorecard.v1") return comparedCard;
  const members = Object.entries({ ...comparedCard, schema }).filter(([name]) => Object.hasOwn(published, name));
  return Object.fromEntries(members);
}

/** The first difference between two values, in the member order of RFC 8785. `field` is its path from the top. */
export interface Difference {
  field: string;
  expected: string;
  got: string;
}

const MAX_SHOWN_LENGTH = 200;
const shorten = (value: unknown): string =>
  value === undefined ? "nothing" : canonicalText(value).slice(0, MAX_SHOWN_LENGTH);
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/**
 * Finds the first difference between two values.
 * @param expected the recomputed value
 * @param got the published value
 * @returns null when their RFC 8785 bytes are equal
 */
export function firstDifference(expected: unknown, got: unknown, field = ""): Difference | null {
  if (expected !== undefined && got !== undefined && canonicalText(expected) === canonicalText(got)) return null;
  const haveMembers = isObject(expected) && isObject(got) && Array.isArray(expected) === Array.isArray(got);
  if (!haveMembers) return { field, expected: shorten(expected), got: shorten(got) };
  for (const name of [...new Set([...Object.keys(expected), ...Object.keys(got)])].sort()) {
    const isSame = expected[name] === got[name];
    const difference = isSame ? null : firstDifference(expected[name], got[name], field ? `${field}.${name}` : name);
    if (difference) return difference;
  }
  return { field, expected: shorten(expected), got: shorten(got) };
}

/**
 * Reads the tables of related parties (payees and domains that took money) from evidence files, by hash. Each line of a
 * file contains the changes of the previous line's table, and the hash of the table that results.
 * @param wanted hashes of the tables that are kept; null: all
 * @throws Unproven, MissingObject, Oversized, SourceDown
 */
export async function readRelatedPartyTables(
  source: Source,
  files: readonly EvidenceFile[],
  handleBroken: HandleBroken = rethrow,
  wanted: ReadonlySet<string> | null = null,
): Promise<Map<string, RelatedParties>> {
  const tables = new Map<string, RelatedParties>([[NO_RELATED_PARTIES_SHA256, new RelatedParties([])]]);
  const keep = (name: string, table: RelatedParties) => {
    if (!wanted || wanted.has(name)) tables.set(name, table);
  };
  for (const file of files) await readTables(source, file, keep).catch(handleBroken({ day: file.day }));
  return tables;
}

async function readTables(
  source: Source,
  file: EvidenceFile,
  keep: (name: string, table: RelatedParties) => void,
): Promise<void> {
  const table = new Map<string, NonDeliveringSeller>();
  await readProvenLines(await fetchFile(source, file), file, (line) => {
    const { data: changes } = RelatedPartiesLine.safeParse(parseJson(line));
    if (!changes) throw new Unproven(file.key, "changes of a table", line.toString("utf8", 0, 80));
    const { kin: name, add, remove } = changes;
    for (const cap of remove) table.delete(cap);
    for (const { cap, domain, pay_to } of add) table.set(cap, { cap, domain, pay_to });
    const namedTable = new RelatedParties([...table.values()]);
    if (namedTable.sha256 !== name) throw new Unproven(file.key, `the table ${name}`, namedTable.sha256);
    keep(name, namedTable);
  });
}
