import { forEachYielding } from "../../infra/concurrency.ts";
import { type Signer, signTextSoon } from "../../infra/keys/signer.ts";
import {
  type CardFacts,
  decidePublication,
  type PublicationDecision,
  type PublishedFacts,
} from "../3-grade/changed.ts";
import { whyText } from "../3-grade/why.ts";
import { lastCountedDayOf, type PublishedCap, wasCorrectedBetween } from "../published/caps.ts";
import type { PublishedCorrection } from "../published/endpoint.ts";
import type { RunCard, RunHeader, RunLine, SignedCard, UnsignedCard } from "../record/card.ts";
import { partitionOf } from "../record/ids.ts";
import { dayOf, dayStart } from "../record/time.ts";
import { BANDS, type Band, FLAGS, type Flag } from "../record/vocabulary.ts";
import type { Before } from "./committer.ts";
import { unknownDrafts } from "./known.ts";
import { CARD_TEXT, type Draft, type Group } from "./leaves.ts";
import { holdOf } from "./letters.ts";

export type GradeDraft = Draft & { kind: "grade" };
export type CorrectionDraft = Draft & { kind: "correction" | "dispute" | "reinstated" };

/** What some lines of a run come to, held against what is published. */
export interface TakeResult {
  groups: Group[];
  cards: number;
  /** Lines that are not newer than what is published for their endpoint. */
  stale: number;
  /**
   * Of these the endpoints that were stale by the run's moment alone, and of which it said something new: the grader's
   * clock was not past that of the published cards. What it said of them is lost, so it has to look again.
   */
  early: string[];
}

export interface TakeContext {
  /** Partitions of the event log: which positions a card stood on. */
  partitions: number;
  cards: Signer;
  /** Called for every card that is signed. */
  onSigned: () => void;
}

/** Lines that are held against what is published between two turns of others: a few milliseconds, signatures included. */
const LINES_A_TURN = 32;

/** A correction that is published with this group: it withdraws every letter that is in the log now. */
const pending = (drafts: readonly CorrectionDraft[]): PublishedCorrection[] =>
  drafts.map(({ kind, body, position = null }) => ({ leaf: Number.MAX_SAFE_INTEGER, kind, position, body }));

/**
 * Makes the groups for these lines, which `checkLine` (runs.ts) has passed: the new corrections of each endpoint, then its
 * cards, the deepest tier first. An endpoint whose card changes nothing gets no group.
 */
export async function takeLines(
  { fold }: Before,
  header: RunHeader,
  lines: readonly RunLine[],
  corrections: readonly CorrectionDraft[],
  context: TakeContext,
): Promise<TakeResult> {
  const taken = { groups: [] as Promise<Group>[], cards: 0, stale: 0, early: [] as string[] };
  const fresh = unknownDrafts(fold, corrections) as CorrectionDraft[];
  const offsets = offsetsOf(header, context.partitions);
  const take = (line: RunLine): void => {
    const own = fresh.filter((draft) => draft.capability_id === line.cap);
    const known = fold.caps.get(line.cap);
    const positions = offsets[partitionOf(line.cap, context.partitions)]!;
    const behind = known !== undefined && isBehind(positions, known);
    if (known && (behind || header.now <= known.computedAt)) {
      taken.stale++;
      if (!behind && evaluate(known, header.now, line, own).verdict.publish !== "no") taken.early.push(line.cap);
      if (own.length) taken.groups.push(Promise.resolve(own));
      return;
    }
    const { cards, verdict } = evaluate(known, header.now, line, own);
    const now = verdict.publish === "now" ? cards : [];
    const drafts = now.map((card) => draftOf(card, header, line, positions, context));
    taken.cards += drafts.length;
    // While other cores sign these the next lines are evaluated.
    const group = Promise.all([...own, ...drafts]);
    // Whatever fails is thrown below; until then a failure is not an unhandled one.
    group.catch(() => undefined);
    if (own.length + drafts.length) taken.groups.push(group);
  };
  await forEachYielding(lines, LINES_A_TURN, take);
  return { ...taken, groups: await Promise.all(taken.groups) };
}

/** The cards of a line as they would be published, and whether they are. */
function evaluate(
  known: PublishedCap | undefined,
  now: string,
  line: Pick<RunLine, "cards">,
  own: readonly CorrectionDraft[],
): { cards: NextCard[]; verdict: PublicationDecision } {
  const cards = cardsOf(known, { now }, line, own);
  const corrected = own.some((draft) => draft.kind !== "dispute") || correctedSinceCards(known);
  return { cards, verdict: decidePublication(factsOf(known), cards.map(nextFacts), new Date(now), corrected) };
}

/**
 * Would nothing of this line be published, held against what is published now? A grader beside the publisher leaves it
 * out of its run. Not to be asked of an endpoint with a correction that is not published yet.
 */
export const saysNothingNew = (known: PublishedCap | undefined, now: string, line: Pick<RunLine, "cards">): boolean =>
  known !== undefined && now >= known.computedAt && evaluate(known, now, line, []).verdict.publish === "no";

/** Was a correction published alone after the newest cards? Their consequence is due then. */
const correctedSinceCards = (known: PublishedCap | undefined): boolean =>
  !!known && known.cards.length > 0 && wasCorrectedBetween(known, known.cards.at(-1)!.leaf);

/** What is published of an endpoint, as the publish rule compares it. Leaves carry no caps, so neither side has them. */
const factsOf = (known: PublishedCap | undefined): PublishedFacts | null =>
  known && known.cards.length > 0
    ? {
        cards: known.cards.map(({ text, raw_band, headline }) => {
          return { card: JSON.parse(text) as SignedCard, raw_band, headline };
        }),
        at: dayStart(known.day),
        countedDay: lastCountedDayOf(known) || null,
      }
    : null;

const nextFacts = ({ run, card }: NextCard): CardFacts => ({ card, raw_band: run.raw_band, headline: run.headline });

/** {topic: next offset} of each partition. */
const offsetsOf = ({ positions }: RunHeader, partitions: number): Record<string, number>[] =>
  Array.from({ length: partitions }, (_, partition) => {
    const of = Object.entries(positions).map(([topic, offsets]) => [topic, offsets[String(partition)]] as const);
    return Object.fromEntries(of.filter((one): one is [string, number] => one[1] !== undefined));
  });

/**
 * A grader that was paused must not put an old card over a new one: no position may lie behind, and it must have read every
 * correction that is published already, also one that was published without a card. Nor may its moment lie at or before
 * the published one: cards of one endpoint are told apart by it, and readers take neighbours of one moment for one
 * group.
 */
const isBehind = (positions: Record<string, number>, known: PublishedCap): boolean =>
  Object.entries(known.positions).some(([topic, next]) => (positions[topic] ?? 0) < next) ||
  known.corrections.some(({ position }) => position !== null && (positions.corrections ?? 0) <= position);

/** A card as it would be published: after hold and clamp, before its signature. */
export interface NextCard {
  run: RunCard;
  card: UnsignedCard;
  why: string;
}

/** A run's cards as they are published on this day: with the hold that the raw letters in the log put on them. */
export function cardsOf(
  known: Pick<PublishedCap, "letters" | "corrections"> | undefined,
  header: Pick<RunHeader, "now">,
  line: Pick<RunLine, "cards">,
  corrections: readonly CorrectionDraft[],
): NextCard[] {
  const { raw_band } = line.cards.find((card) => card.headline)!;
  const all = [...(known?.corrections ?? []), ...pending(corrections)];
  const held = holdOf(known, all, dayOf(new Date(header.now)), raw_band);
  return line.cards.map((run) => {
    const band = run.headline ? held.band : clamp(run.raw_band, held.band);
    const heldUntil = band !== run.raw_band && band === held.band ? held.heldUntil : null;
    const flags = heldUntil ? withFlag(run.card.flags, "held_14d") : run.card.flags;
    const why = whyText({ band, rawBand: run.raw_band, parts: run.why, heldUntil });
    return { run, card: { ...run.card, band, flags }, why };
  });
}

/** Flags with one more, in the order in which they are published. */
const withFlag = (flags: readonly Flag[], more: Flag): Flag[] =>
  FLAGS.filter((flag) => flag === more || flags.includes(flag));

/**
 * Another tier's letter beside the headline's: never better. Beside an UNRATED headline it stays: UNRATED is no letter
 * to be better than, and what leaves a headline UNRATED leaves every tier so, but for the early F.
 */
const clamp = (raw: Band, headline: Band): Band =>
  raw !== "UNRATED" && headline !== "UNRATED" && BANDS.indexOf(headline) > BANDS.indexOf(raw) ? headline : raw;

async function draftOf(
  { run, card, why }: NextCard,
  header: RunHeader,
  line: RunLine,
  positions: Record<string, number>,
  context: TakeContext,
): Promise<GradeDraft> {
  context.onSigned();
  const signed = await signTextSoon(context.cards, card);
  return {
    kind: "grade",
    day: dayOf(new Date(header.now)),
    raw_band: run.raw_band,
    headline: run.headline,
    why,
    inputs: { positions, digest: line.inputs_digest, kin: header.kin_sha256 },
    card: signed.object,
    [CARD_TEXT]: signed.text,
  };
}
