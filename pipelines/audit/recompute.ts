import type { Kin } from "../3-grade/kin.ts";
import { gradeRows } from "../3-grade/pure.ts";
import type { PublishedCap } from "../4-publish/fold.ts";
import { cardsOf } from "../4-publish/take-lines.ts";
import { Unproven } from "../mirror/errors.ts";
import { fetchEvidence, readEvidence } from "../mirror/evidence.ts";
import type { Source } from "../mirror/source.ts";
import { AmendmentLine, type EvidenceLine, SampleLine } from "../record/evidence.ts";
import { bucketOf } from "../record/ids.ts";
import { addDays, dayOf } from "../record/time.ts";
import { registrableDomain } from "../record/url.ts";
import { EndpointEvidence } from "./as-of.ts";
import { type Difference, firstDifference } from "./compare.ts";
import { type CardGroup, type Gathered, gather, type Wanted } from "./gather.ts";
import { kinTables } from "./kin-tables.ts";

/**
 * What came of one published card. `ok`: every byte but the signature came out again, and so did the digest of its
 * inputs, its sentence and its raw letter. `pending`: the evidence that it stands on is not published yet.
 */
export interface CardVerdict {
  capability_id: string;
  url: string | null;
  /** Log position of its leaf. */
  leaf: number;
  tier: string;
  band: string;
  computed_at: string;
  verdict: "ok" | "pending" | "differs";
  /** Why it is pending. */
  says?: string;
  difference?: Difference;
}

export interface Recomputed {
  size: number;
  /** Newest closed day, "" before the first. */
  closed_to: string;
  endpoints: number;
  ok: number;
  pending: number;
  differs: number;
}

/**
 * Recompute the cards of some endpoints from public objects alone, without a database: signatures and places in the log,
 * rows as of each card's positions, kin table, letter, hold and sentence (publication.md, Auditor).
 * @param head a checkpoint that was verified @param told of every card, in order of capability and log
 * @throws BadUrl, Unproven, MissingObject, Tampered, Oversized, SourceDown
 */
export async function recompute(
  source: Source,
  head: { size: number; root: Buffer },
  wanted: Wanted,
  told: (verdict: CardVerdict) => void,
): Promise<Recomputed> {
  return recomputeGathered(source, await gather(source, head, wanted), told);
}

/** The same for what was gathered before. */
export async function recomputeGathered(
  source: Source,
  gathered: Gathered,
  told: (verdict: CardVerdict) => void,
): Promise<Recomputed> {
  const kin = await kinTables(source, gathered.kin);
  const counts = { ok: 0, pending: 0, differs: 0 };
  const byBucket = [...gathered.groups.keys()].sort((a, b) => bucketOf(a) - bucketOf(b) || (a < b ? -1 : 1));
  for (let at = 0; at < byBucket.length; ) {
    const bucket = bucketOf(byBucket[at]!);
    let end = at;
    while (end < byBucket.length && bucketOf(byBucket[end]!) === bucket) end++;
    const caps = byBucket.slice(at, end);
    const evidence = await evidenceOf(source, gathered, bucket, new Set(caps));
    for (const cap of caps) {
      for (const verdict of verdictsOf(cap, gathered, evidence.get(cap)!, kin)) {
        counts[verdict.verdict]++;
        told(verdict);
      }
    }
    at = end;
  }
  return { size: gathered.size, closed_to: gathered.evidence.newest, endpoints: byBucket.length, ...counts };
}

/** Lines of these capabilities in all files of their bucket, oldest first. */
async function evidenceOf(
  source: Source,
  { rows }: Gathered,
  bucket: number,
  caps: ReadonlySet<string>,
): Promise<Map<string, EndpointEvidence>> {
  const found = new Map([...caps].map((cap) => [cap, new EndpointEvidence()]));
  for (const file of rows.get(bucket) ?? []) {
    const lines: EvidenceLine[] = [];
    await readEvidence(await fetchEvidence(source, file), file, (bytes) => {
      const line = lineOf(bytes);
      if (line && caps.has(line.capability_id)) lines.push(line);
      else if (!line) lines.push(BAD);
    });
    if (lines.includes(BAD)) throw new Unproven(file.key, "samples and amendments", "a line that is neither");
    for (const line of lines) found.get(line.capability_id)!.add(line);
  }
  return found;
}

const BAD = {} as EvidenceLine;

function lineOf(bytes: Buffer): EvidenceLine | null {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString("utf8"));
  } catch {
    return null;
  }
  const isSample = typeof value === "object" && value !== null && "obs_id" in value;
  const { data } = isSample ? SampleLine.safeParse(value) : AmendmentLine.safeParse(value);
  return data ?? null;
}

function* verdictsOf(
  cap: string,
  gathered: Gathered,
  evidence: EndpointEvidence,
  kin: ReadonlyMap<string, Kin>,
): Generator<CardVerdict> {
  const url = gathered.urls.get(cap) ?? null;
  for (const group of gathered.groups.get(cap) ?? []) {
    const found = judge(cap, group, gathered, evidence, kin);
    for (const [i, { index, card }] of group.leaves.entries()) {
      const { tier, band, computed_at } = card;
      yield { capability_id: cap, url, leaf: index, tier, band, computed_at, ...found[i]! };
    }
  }
}

type Found = Pick<CardVerdict, "verdict" | "says" | "difference">;

/** Domain of an endpoint's url, as the record has it; null where it has none. */
function domainOf(url: string | undefined): string | null {
  try {
    return url === undefined ? null : registrableDomain(url);
  } catch {
    return null;
  }
}

/** The cards of one group, each held against what comes out of the evidence. */
function judge(
  cap: string,
  { leaves, before }: CardGroup,
  { evidence: closed, urls }: Gathered,
  evidence: EndpointEvidence,
  tables: ReadonlyMap<string, Kin>,
): Found[] {
  const { day, inputs, card: first } = leaves[0]!;
  const now = new Date(first.computed_at);
  const all = (found: Found): Found[] => leaves.map(() => found);
  if (dayOf(now) > closed.newest)
    return all({ verdict: "pending", says: `the evidence of ${dayOf(now)} is not published yet` });
  const kin = tables.get(inputs.kin);
  if (!kin) {
    const owed = closed.kin.get(day)?.has(inputs.kin);
    if (owed) return all({ verdict: "pending", says: `the kin table ${inputs.kin} is not published yet` });
    return all({
      verdict: "differs",
      difference: { field: "inputs.kin", expected: "a published table", got: inputs.kin },
    });
  }
  const line = gradeRows(evidence.asOf(cap, inputs.positions, domainOf(urls.get(cap))), kin, now);
  const cards = cardsOf({ ...EMPTY, cap, ...before }, { now: first.computed_at }, line, []);
  const want = cards.map(({ run, card, why }) => ({
    day: dayOf(now),
    inputs: { ...inputs, digest: line.inputs_digest },
    raw_band: run.raw_band,
    headline: run.headline,
    why,
    card,
  }));
  if (want.length !== leaves.length) {
    const tiers = (of: readonly { card: { tier: string } }[]) => of.map(({ card }) => card.tier).join(", ");
    return all({ verdict: "differs", difference: { field: "tiers", expected: tiers(want), got: tiers(leaves) } });
  }
  return leaves.map((leaf, i): Found => {
    const { signing_key_id: _, canonicalization: __, signature: ___, ...card } = leaf.card;
    const got = {
      day: leaf.day,
      inputs: leaf.inputs,
      raw_band: leaf.raw_band,
      headline: leaf.headline,
      why: leaf.why,
      card,
    };
    // Which version of our checks scored the samples is said by the leaf; nothing recomputes it.
    const expected = { ...want[i]!, card: { ...want[i]!.card, verifier_version: card.verifier_version } };
    const inputsDiffer = firstDifference(expected.inputs, got.inputs, "inputs");
    const difference = inputsDiffer ?? firstDifference(expected, got);
    if (!difference) return { verdict: "ok" };
    // A card may know records of the day after its own, when the past is lapsed: until that day is closed it is open.
    const open = addDays(dayOf(now), 1) > closed.newest;
    return open ? { verdict: "pending", says: "the next day is not closed yet" } : { verdict: "differs", difference };
  });
}

const EMPTY: PublishedCap = {
  ...{ cap: "", listing: null, cards: [], before: [], beforeLeaf: -1, countedBefore: "", computedAt: "", day: "" },
  ...{ positions: {}, raw: [], corrections: [] },
};
