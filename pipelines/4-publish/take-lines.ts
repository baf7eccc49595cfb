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
import type { PublishedState } from "./committer.ts";
import { newDraftsOf } from "./known.ts";
import { CARD_TEXT, type Draft, type Group } from "./leaves.ts";
import { holdOf } from "./letters.ts";

export type GradeDraft = Draft & { kind: "grade" };
export type CorrectionDraft = Draft & { kind: "correction" | "dispute" | "reinstated" };

/** The leaves to publish for some lines of a run, and the lines that were not taken. */
export interface TakeResult {
  groups: Group[];
  cards: number;
  /** Lines that are not newer than what is published for their endpoint. */
  stale: number;
  /**
   * Endpoints among the stale ones for which only the run's time was too early, while the cards had changed: the grader's
   * clock was behind that of the published cards. These cards are lost, so the owner has to grade the endpoints again.
   */
  early: string[];
}

export interface TakeContext {
  /** Number of partitions of the event log. */
  partitions: number;
  cards: Signer;
  /** Called for every card that is signed. */
  onSigned: () => void;
}

/** Lines that are evaluated and signed (in a few milliseconds) before other work of the process gets its turn. */
const LINES_PER_TURN = 32;

/** Corrections of this group as if published: each withdraws letters that are in the log now. */
const asPublished = (drafts: readonly CorrectionDraft[]): PublishedCorrection[] =>
  drafts.map(({ kind, body, position = null }) => ({ leaf: Number.MAX_SAFE_INTEGER, kind, position, body }));

/**
 * Makes the groups for these lines, which `checkLine` (runs.ts) has passed: the new corrections of each endpoint, then its
 * cards, the deepest tier first. An endpoint whose card changes nothing gets no group.
 */
export async function takeLines(
  { fold }: PublishedState,
  header: RunHeader,
  lines: readonly RunLine[],
  corrections: readonly CorrectionDraft[],
  context: TakeContext,
): Promise<TakeResult> {
  const taken = { groups: [] as Promise<Group>[], cards: 0, stale: 0, early: [] as string[] };
  const fresh = newDraftsOf(fold, corrections) as CorrectionDraft[];
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
    const drafts = now.map((card) => signDraft(card, header, line, positions, context));
    taken.cards += drafts.length;
    // The next lines are evaluated while the thread pool signs these.
    const group = Promise.all([...own, ...drafts]);
    // Whatever fails is thrown below; until then a failure is not an unhandled one.
    group.catch(() => undefined);
    if (own.length + drafts.length) taken.groups.push(group);
  };
  await forEachYielding(lines, LINES_PER_TURN, take);
  return { ...taken, groups: await Promise.all(taken.groups) };
}

/** Computes the cards that a line would publish, and decides whether they are published. */
function evaluate(
  known: PublishedCap | undefined,
  now: string,
  line: Pick<RunLine, "cards">,
  own: readonly CorrectionDraft[],
): { cards: NextCard[]; verdict: PublicationDecision } {
  const cards = nextCardsOf(known, { now }, line, own);
  const corrected = own.some((draft) => draft.kind !== "dispute") || correctedSinceCards(known);
  return { cards, verdict: decidePublication(publishedFactsOf(known), cards.map(nextFacts), new Date(now), corrected) };
}

/**
 * Would this line change nothing that is published? A grader leaves such lines out of its run. Must not be called for an
 * endpoint with an unpublished correction.
 */
export const changesNothing = (known: PublishedCap | undefined, now: string, line: Pick<RunLine, "cards">): boolean =>
  known !== undefined && now >= known.computedAt && evaluate(known, now, line, []).verdict.publish === "no";

/** Was a correction published after the newest cards? Then new cards have to be published. */
const correctedSinceCards = (known: PublishedCap | undefined): boolean =>
  !!known && known.cards.length > 0 && wasCorrectedBetween(known, known.cards.at(-1)!.leaf);

/** The published cards of an endpoint in the form that the publish rule compares. */
const publishedFactsOf = (known: PublishedCap | undefined): PublishedFacts | null =>
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
 * Is a run older than what is published for an endpoint? A paused grader must not replace a new card by an old one. So
 * no position of the run may be behind the published one, the run must have read every published correction, and its
 * time must be later: readers tell groups of cards apart by their time.
 */
const isBehind = (positions: Record<string, number>, known: PublishedCap): boolean =>
  Object.entries(known.positions).some(([topic, next]) => (positions[topic] ?? 0) < next) ||
  known.corrections.some(({ position }) => position !== null && (positions.corrections ?? 0) <= position);

/** A card to be published, after the hold and the clamp to the headline's letter, before it is signed. */
export interface NextCard {
  run: RunCard;
  card: UnsignedCard;
  why: string;
}

/** Computes the cards to publish from a run's line: applies the hold that follows from the raw letters in the log. */
export function nextCardsOf(
  known: Pick<PublishedCap, "letters" | "corrections"> | undefined,
  header: Pick<RunHeader, "now">,
  line: Pick<RunLine, "cards">,
  corrections: readonly CorrectionDraft[],
): NextCard[] {
  const { raw_band } = line.cards.find((card) => card.headline)!;
  const all = [...(known?.corrections ?? []), ...asPublished(corrections)];
  const held = holdOf(known, all, dayOf(new Date(header.now)), raw_band);
  return line.cards.map((run) => {
    const band = run.headline ? held.band : clampToHeadline(run.raw_band, held.band);
    const heldUntil = band !== run.raw_band && band === held.band ? held.heldUntil : null;
    const flags = heldUntil ? withFlag(run.card.flags, "held_14d") : run.card.flags;
    const why = whyText({ band, rawBand: run.raw_band, parts: run.why, heldUntil });
    return { run, card: { ...run.card, band, flags }, why };
  });
}

/** Adds a flag, in the order of publication. */
const withFlag = (flags: readonly Flag[], more: Flag): Flag[] =>
  FLAGS.filter((flag) => flag === more || flags.includes(flag));

/**
 * Limits the letter of another tier to the headline's: it is never better. Beside an UNRATED headline it does not
 * change, since UNRATED is not a letter.
 */
const clampToHeadline = (raw: Band, headline: Band): Band =>
  raw !== "UNRATED" && headline !== "UNRATED" && BANDS.indexOf(headline) > BANDS.indexOf(raw) ? headline : raw;

async function signDraft(
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
