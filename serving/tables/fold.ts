import { progressOfCard, weightIn } from "../../pipelines/3-grade/letter.ts";
import { cardMoment, type GradeLeaf, type Leaf, type ListingLeaf } from "../../pipelines/record/leaf.ts";
import type { CorrectionRecord } from "../../pipelines/record/volatile.ts";
import { Correction, Defect } from "../schemas/common.ts";
import { type CardEntry, type Entry, MAX_LETTERS, packLeaf } from "./entry.ts";

/** Reads the newest state of an endpoint, or undefined when the fold has not met it. */
export type Before = (cap: string) => Entry | undefined;

/**
 * The state of one endpoint after one more leaf; null for kinds that say nothing of an endpoint (keys, index, schedule,
 * and kinds of a later version). Pure: replaying the log to size N gives the state at N.
 */
export function foldLeaf(before: Before, leaf: Leaf, bytes: Buffer): Entry | null {
  switch (leaf.kind) {
    case "listing":
      return listed(before(leaf.capability_id) ?? bare(leaf.capability_id), leaf);
    case "delisting":
      return { ...(before(leaf.capability_id) ?? bare(leaf.capability_id)), listed: false };
    case "grade":
      return graded(before(leaf.card.capability_id) ?? bare(leaf.card.capability_id), leaf, bytes);
    case "correction":
    case "dispute":
    case "reinstated":
      return withSaying(before(leaf.capability_id) ?? bare(leaf.capability_id), leaf);
    default:
      return null;
  }
}

/** An endpoint of which only its id is known yet. */
export const bare = (cap: string): Entry => ({
  ...{ cap, url: null, method: null, tool: null, class: "any", description: null, listed: false },
  ...{ defects: [], cards: [], letters: [], corrections: [], disputes: [], takenBack: [] },
});

const listed = (old: Entry, leaf: ListingLeaf): Entry => ({
  ...old,
  url: leaf.url,
  method: leaf.method,
  tool: leaf.tool,
  class: leaf.class,
  description: leaf.description,
  listed: true,
  defects: leaf.defects.map((defect) => Defect.parse(pick(defect, ["defect", "says", "seenAt"]))),
});

/** Cards of one endpoint in one run are neighbours, deepest first; anything else begins a new group. */
function graded(old: Entry, leaf: GradeLeaf, bytes: Buffer): Entry {
  const { card } = leaf;
  const made: CardEntry = {
    leaf: leaf.index,
    packed: packLeaf(bytes),
    headline: leaf.headline,
    tier: card.tier,
    band: card.band,
    measured: card.components !== null,
    composite: card.composite,
    computedAt: cardMoment(leaf),
    paidSamples: card.components ? weightIn(card.components.correctness) : 0,
    progress: progressOfCard(card),
  };
  const last = old.cards.at(-1);
  const sameRun = last?.leaf === made.leaf - 1 && last.computedAt === made.computedAt;
  const letter = { at: made.computedAt, raw: leaf.raw_band, band: card.band };
  const letters = leaf.headline ? [...old.letters, letter].slice(-MAX_LETTERS) : old.letters;
  return { ...old, cards: sameRun ? [...old.cards, made] : [made], letters };
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const textOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);

/** The entry after a correction, a dispute or a reinstatement: its leaf, or its record before there is a leaf. */
export function withSaying(old: Entry, { kind, body }: CorrectionRecord): Entry {
  if (kind === "dispute") return { ...old, disputes: [...old.disputes, body] };
  if (kind === "reinstated") {
    const corrections = old.corrections.map((one) => takenBack(one, body));
    return { ...old, corrections, takenBack: [...old.takenBack, text(body.correction)] };
  }
  const correction = Correction.parse({
    id: text(body.id),
    fault: text(body.fault),
    says: text(body.says),
    issuedAt: text(body.issued_at),
    recordId: textOrNull(body.record_id),
    gradeAt: textOrNull(body.grade_at),
  });
  return { ...old, corrections: [...old.corrections, correction] };
}

/** A correction that was itself wrong stays in the list, and says so: nothing that was published is hidden again. */
const takenBack = (correction: Correction, body: Record<string, unknown>): Correction =>
  correction.id === body.correction
    ? { ...correction, says: `${correction.says} (taken back: ${text(body.says)})` }
    : correction;

const pick = (value: Record<string, unknown>, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(names.filter((name) => value[name] !== undefined).map((name) => [name, value[name]]));
