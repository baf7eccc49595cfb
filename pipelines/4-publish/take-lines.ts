import { signObject } from "../../infra/keys/sign.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { RunCard, RunHeader, RunLine, UnsignedCard } from "../record/card.ts";
import { partitionOf } from "../record/ids.ts";
import { dayOf } from "../record/time.ts";
import { type Band, FLAGS } from "../record/vocabulary.ts";
import { correctedSince } from "./cadence.ts";
import type { Before } from "./committer.ts";
import type { PublishedCap, PublishedCorrection, PublishedFold } from "./fold.ts";
import { unknownDrafts } from "./known.ts";
import type { Draft, Group } from "./leaves.ts";
import { heldLetters, worse } from "./letters.ts";
import { type Held, hold, mustPublish, whyOf } from "./rules.ts";
import { checkLine } from "./runs.ts";

export type GradeDraft = Draft & { kind: "grade" };
export type CorrectionDraft = Draft & { kind: "correction" | "dispute" | "reinstated" };

/** What some lines of a run come to, held against what is published. */
export interface TakenLines {
  groups: Group[];
  cards: number;
  /** Changed, and published today already: to be looked at again tomorrow. */
  deferred: string[];
  /** Lines that are older than what is published for their endpoint. */
  stale: number;
}

export interface TakeContext {
  /** Partitions of the event log: which positions a card stood on. */
  partitions: number;
  cards: Signer;
  /** Called for every card that is signed. */
  onSigned: () => void;
}

/** A correction that is published with this group: it withdraws every letter that is in the log now. */
const pending = (drafts: readonly CorrectionDraft[]): PublishedCorrection[] =>
  drafts.map(({ kind, body }) => ({ leaf: Number.MAX_SAFE_INTEGER, kind, body }));

/**
 * Groups for these lines: each endpoint's new corrections, then its cards, deepest first. An endpoint whose card says
 * nothing new gets none.
 */
export function takeLines(
  { fold }: Before,
  header: RunHeader,
  lines: readonly RunLine[],
  corrections: readonly CorrectionDraft[],
  context: TakeContext,
): TakenLines {
  const taken: TakenLines = { groups: [], cards: 0, deferred: [], stale: 0 };
  const fresh = unknownDrafts(fold, corrections) as CorrectionDraft[];
  for (const line of lines.map(checkLine)) {
    const own = fresh.filter((draft) => draft.capability_id === line.cap);
    const known = fold.caps.get(line.cap);
    const positions = positionsOf(header, line.cap, context.partitions);
    if (known && isOlder(header, positions, known)) {
      taken.stale++;
      if (own.length) taken.groups.push(own);
      continue;
    }
    const cards = cardsOf(fold, header, line, own);
    const verdict = mustPublish(known ?? null, cards, dayOf(new Date(header.now)), withdrawn(own, known));
    if (verdict === "later") taken.deferred.push(line.cap);
    const drafts = verdict === "now" ? cards.map((card) => draftOf(card, header, line, positions, context)) : [];
    taken.cards += drafts.length;
    if (own.length + drafts.length) taken.groups.push([...own, ...drafts]);
  }
  return taken;
}

/** Is a correction or reinstatement published with this line, or was one since the card it follows? */
const withdrawn = (own: readonly CorrectionDraft[], known: PublishedCap | undefined): boolean =>
  own.some((draft) => draft.kind !== "dispute") ||
  (!!known && known.cards.length > 0 && correctedSince(known, known.cards.at(-1)!.leaf));

/** {topic: next offset} of the endpoint's partition. */
function positionsOf(header: RunHeader, cap: string, partitions: number): Record<string, number> {
  const partition = String(partitionOf(cap, partitions));
  const entries = Object.entries(header.positions).flatMap(([topic, offsets]): [string, number][] =>
    offsets[partition] === undefined ? [] : [[topic, offsets[partition]]],
  );
  return Object.fromEntries(entries);
}

/** A grader that slept must not put an old card over a new one: neither its time nor any position may lie behind. */
const isOlder = (header: RunHeader, positions: Record<string, number>, known: PublishedCap): boolean =>
  header.now < known.computedAt ||
  Object.entries(known.positions).some(([topic, next]) => (positions[topic] ?? 0) < next);

/** A card as it would be published: after hold and clamp, before its signature. */
export interface NextCard {
  run: RunCard;
  card: UnsignedCard;
  why: string;
}

function cardsOf(
  fold: PublishedFold,
  header: RunHeader,
  line: RunLine,
  corrections: readonly CorrectionDraft[],
): NextCard[] {
  const known = fold.caps.get(line.cap);
  const headline = line.cards.find((card) => card.headline)!;
  const all = [...(known?.corrections ?? []), ...pending(corrections)];
  const letters = known ? heldLetters(known, all, dayOf(new Date(header.now))) : [];
  const held = hold(headline.raw_band, letters);
  return line.cards.map((run) => {
    const band = run.headline ? held.band : clamp(run.raw_band, held.band);
    const isHeld = held.heldUntil !== null && band !== run.raw_band && band === held.band;
    const flags = isHeld
      ? FLAGS.filter((flag) => flag === "held_14d" || run.card.flags.includes(flag))
      : run.card.flags;
    const card = { ...run.card, band, flags };
    return { run, card, why: whyOf(run, band, isHeld ? held : NOT_HELD) };
  });
}

const NOT_HELD: Held = { band: "UNRATED", heldUntil: null };

/**
 * Another tier's letter beside the headline's: never better. Beside an UNRATED headline only an F stands, since every
 * other letter would say more good than the headline does.
 */
function clamp(raw: Band, headline: Band): Band {
  if (raw === "UNRATED" || raw === "F") return raw;
  return headline === "UNRATED" ? headline : worse(raw, headline);
}

function draftOf(
  { run, card, why }: NextCard,
  header: RunHeader,
  line: RunLine,
  positions: Record<string, number>,
  context: TakeContext,
): GradeDraft {
  context.onSigned();
  return {
    kind: "grade",
    day: dayOf(new Date(header.now)),
    raw_band: run.raw_band,
    headline: run.headline,
    why,
    inputs: { positions, digest: line.inputs_digest, kin: header.kin_sha256 },
    card: signObject(context.cards, card),
  };
}
