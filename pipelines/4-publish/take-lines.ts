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
import type { RunCard, RunHeader, RunLine, UnsignedCard } from "../record/card.ts";
import { partitionOf } from "../record/ids.ts";
import { dayOf, dayStart } from "../record/time.ts";
import { BANDS, type Band, FLAGS, type Flag } from "../record/vocabulary.ts";
import type { PublishedState } from "./committer.ts";
import { newDraftsOf } from "./known.ts";
import { CARD_TEXT, type Draft, type Group } from "./leaves.ts";
import { holdOf } from "./letters.ts";

export type GradeDraft = Draft & { kind: "grade" };
export type CorrectionDraft = Draft & { kind: "correction" | "dispute" | "reinstated" };

/** The leaves (log entries) to publish for some lines of a run, and the lines that were not used. */
export interface TakeResult {
  groups: Group[];
  /** Number of cards that were signed. */
  cards: number;
  /** Number of lines that are not newer than the published cards of their endpoint. */
  stale: number;
  /**
   * Endpoints of stale lines whose cards had changed and were stale only because of the run's time: the clock of the
   * grader was behind that of the grader of the published cards. These cards are lost, so the grader has to grade the
   * endpoints again.
   */
  earlyCaps: string[];
}

export interface TakeContext {
  /** Number of partitions of the event log. */
  partitions: number;
  cardSigner: Signer;
  /** Called for every card that is signed. */
  onSigned: () => void;
}

/** Number of lines that are evaluated and signed before other work gets its turn: a few milliseconds of work. */
const LINES_PER_TURN = 32;

/**
 * Converts unpublished corrections to the form of published ones. They get a position after every leaf of the log, so
 * that they apply to all letters in it.
 */
const toPublished = (drafts: readonly CorrectionDraft[]): PublishedCorrection[] =>
  drafts.map(({ kind, body, position = null }) => ({ leaf: Number.MAX_SAFE_INTEGER, kind, position, body }));

/**
 * Makes a group (leaves that are published together) for each endpoint of these lines: first its new corrections, then
 * its cards, from the deepest tier (depth of checks) on. An endpoint whose card changes nothing gets no group.
 * `checkLine` (runs.ts) must have accepted the lines.
 */
export async function takeLines(
  { fold }: PublishedState,
  header: RunHeader,
  lines: readonly RunLine[],
  corrections: readonly CorrectionDraft[],
  context: TakeContext,
): Promise<TakeResult> {
  const result = { groups: [] as Promise<Group>[], cards: 0, stale: 0, earlyCaps: [] as string[] };
  const newCorrections = newDraftsOf(fold, corrections) as CorrectionDraft[];
  const offsets = offsetsByPartition(header, context.partitions);
  const take = (line: RunLine): void => {
    const ownCorrections = newCorrections.filter((draft) => draft.capability_id === line.cap);
    const published = fold.caps.get(line.cap);
    const positions = offsets[partitionOf(line.cap, context.partitions)]!;
    const isOlderRun = published !== undefined && isBehind(positions, published);
    if (published && (isOlderRun || header.now <= published.computedAt)) {
      result.stale++;
      if (!isOlderRun && evaluate(published, header.now, line, ownCorrections).verdict.publish !== "no")
        result.earlyCaps.push(line.cap);
      if (ownCorrections.length) result.groups.push(Promise.resolve(ownCorrections));
      return;
    }
    const { cards, verdict } = evaluate(published, header.now, line, ownCorrections);
    const cardsToPublish = verdict.publish === "now" ? cards : [];
    const drafts = cardsToPublish.map((card) => signDraft(card, header, line, positions, context));
    result.cards += drafts.length;
    // The next lines are evaluated while the thread pool signs these.
    const group = Promise.all([...ownCorrections, ...drafts]);
    // A failure is thrown by the `Promise.all` below. Without this handler it could count as an unhandled rejection
    // before that.
    group.catch(() => undefined);
    if (ownCorrections.length + drafts.length) result.groups.push(group);
  };
  await forEachYielding(lines, LINES_PER_TURN, take);
  return { ...result, groups: await Promise.all(result.groups) };
}

/** Computes the cards that a line would publish, and decides whether they are published. */
function evaluate(
  published: PublishedCap | undefined,
  now: string,
  line: Pick<RunLine, "cards">,
  corrections: readonly CorrectionDraft[],
): { cards: NextCard[]; verdict: PublicationDecision } {
  const cards = nextCardsOf(published, { now }, line, corrections);
  const hasCorrection = corrections.some((draft) => draft.kind !== "dispute") || wasCorrectedSinceCards(published);
  return {
    cards,
    verdict: decidePublication(publishedFactsOf(published), cards.map(nextFacts), new Date(now), hasCorrection),
  };
}

/**
 * Returns whether this line would change nothing that is published. A grader leaves such lines out of its run. Must
 * not be called for an endpoint with an unpublished correction.
 */
export const changesNothing = (
  published: PublishedCap | undefined,
  now: string,
  line: Pick<RunLine, "cards">,
): boolean =>
  published !== undefined && now >= published.computedAt && evaluate(published, now, line, []).verdict.publish === "no";

/** Returns whether a correction was published after the newest cards. Then new cards have to be published. */
const wasCorrectedSinceCards = (published: PublishedCap | undefined): boolean =>
  !!published && published.cards.length > 0 && wasCorrectedBetween(published, published.cards.at(-1)!.leaf);

/** The published cards of an endpoint in the form that `decidePublication` compares. */
const publishedFactsOf = (published: PublishedCap | undefined): PublishedFacts | null =>
  published && published.cards.length > 0
    ? {
        cards: published.cards,
        publishedAt: dayStart(published.day),
        countedDay: lastCountedDayOf(published) || null,
      }
    : null;

const nextFacts = ({ runCard, card }: NextCard): CardFacts => ({
  card,
  raw_band: runCard.raw_band,
  headline: runCard.headline,
});

/** For each partition by its number: {topic: next offset}, up to which the run had read. */
const offsetsByPartition = ({ positions }: RunHeader, partitions: number): Record<string, number>[] =>
  Array.from({ length: partitions }, (_, partition) => {
    const entries = Object.entries(positions).map(([topic, offsets]) => [topic, offsets[String(partition)]] as const);
    return Object.fromEntries(entries.filter((one): one is [string, number] => one[1] !== undefined));
  });

/**
 * Returns whether a run had read less than the runs whose cards are published for an endpoint: one of its offsets is
 * behind the published one, or it had not read a published correction. Such a run may come from a grader that was
 * paused, and its old card must not replace a new one. The caller compares the times too, since readers tell groups of
 * cards apart by their time. An auditor checks published cards by this rule too.
 */
export const isBehind = (
  positions: Readonly<Record<string, number>>,
  published: Pick<PublishedCap, "positions" | "corrections">,
): boolean =>
  Object.entries(published.positions).some(([topic, next]) => (positions[topic] ?? 0) < next) ||
  published.corrections.some(({ position }) => position !== null && (positions.corrections ?? 0) <= position);

/**
 * A card to be published, before it is signed. Its letter is the one after the hold (the worst letter of the last 14
 * days counts); a card other than the headline has no better letter than the headline. `why`: the card's sentence.
 */
export interface NextCard {
  runCard: RunCard;
  card: UnsignedCard;
  why: string;
}

/** Computes the cards to publish from a run's line. Applies the hold that follows from the raw letters in the log. */
export function nextCardsOf(
  published: Pick<PublishedCap, "letters" | "corrections"> | undefined,
  header: Pick<RunHeader, "now">,
  line: Pick<RunLine, "cards">,
  corrections: readonly CorrectionDraft[],
): NextCard[] {
  const { raw_band } = line.cards.find((card) => card.headline)!;
  const allCorrections = [...(published?.corrections ?? []), ...toPublished(corrections)];
  const heldLetter = holdOf(published, allCorrections, dayOf(new Date(header.now)), raw_band);
  return line.cards.map((runCard) => {
    const band = runCard.headline ? heldLetter.band : clampToHeadline(runCard.raw_band, heldLetter.band);
    const heldUntil = band !== runCard.raw_band && band === heldLetter.band ? heldLetter.heldUntil : null;
    const flags = heldUntil ? withFlag(runCard.card.flags, "held_14d") : runCard.card.flags;
    const why = whyText({ band, rawBand: runCard.raw_band, parts: runCard.why, heldUntil });
    return { runCard, card: { ...runCard.card, band, flags }, why };
  });
}

/** Adds a flag. The result has the order in which cards list flags. */
const withFlag = (flags: readonly Flag[], addedFlag: Flag): Flag[] =>
  FLAGS.filter((flag) => flag === addedFlag || flags.includes(flag));

/**
 * Limits the letter of a card other than the headline (the main card): it is never better than the headline's. Beside
 * an UNRATED headline it does not change, since UNRATED is not a letter.
 */
const clampToHeadline = (rawBand: Band, headline: Band): Band =>
  rawBand !== "UNRATED" && headline !== "UNRATED" && BANDS.indexOf(headline) > BANDS.indexOf(rawBand)
    ? headline
    : rawBand;

async function signDraft(
  { runCard, card, why }: NextCard,
  header: RunHeader,
  line: RunLine,
  positions: Record<string, number>,
  context: TakeContext,
): Promise<GradeDraft> {
  context.onSigned();
  const signed = await signTextSoon(context.cardSigner, card);
  return {
    kind: "grade",
    day: dayOf(new Date(header.now)),
    raw_band: runCard.raw_band,
    headline: runCard.headline,
    why,
    inputs: { positions, digest: line.inputs_digest, kin: header.kin_sha256 },
    card: signed.object,
    [CARD_TEXT]: signed.text,
  };
}
