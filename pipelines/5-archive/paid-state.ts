import { REPEATED_PROOF_WINDOW_MS } from "../3-grade/params.ts";
import type { BodyOf } from "../record/bodies.ts";
import { DAY_MS } from "../record/time.ts";

/** One record of a paid call, as the lake (the database of rows) has it. */
export interface PaidFact {
  type: string;
  event_id: string;
  /** Unix ms. */
  t: number;
  offset: number;
  body: unknown;
  /** True if the record belongs to the evidence file that is being made; false if only the row's states need it. */
  member: boolean;
}

/** The state of a paid call after some of its records. Later records may change each of these members. */
export interface PaidState {
  fault: string | null;
  live: boolean | null;
  honest: boolean | null;
  settled: boolean;
  delivered: boolean;
  refunded: boolean;
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  latency_ms: number | null;
  response_sha256: string | null;
  /** The members from here on are in the evidence line, but not in the sample's row of the lake. */
  watched: boolean | null;
  ended: string | null;
  status: number | null;
  checks: unknown;
  differs: unknown;
  control: unknown;
  shown_again: boolean;
  settlement: Record<string, unknown> | null;
  refund: unknown;
}

interface TimedRecord<T> {
  t: number;
  event_id: string;
  body: T;
}
type Result = BodyOf<"paid.result">;
type ShownAgain = TimedRecord<NonNullable<BodyOf<"paid.followup">["shown_again"]>>;

const compareByTime = (a: TimedRecord<unknown>, b: TimedRecord<unknown>): number =>
  a.t - b.t || (a.event_id < b.event_id ? -1 : a.event_id > b.event_id ? 1 : 0);
const toRank = (x: number | boolean | null): number => (x === null ? -1 : Number(x));

const factsOfType = <T>(facts: readonly PaidFact[], type: string): TimedRecord<T>[] =>
  facts.filter((fact) => fact.type === type).map((fact) => ({ ...fact, body: fact.body as T }));

/**
 * Finds the call's result: preferably one from a process that watched the connection to its end, else one that was
 * written after a restart.
 */
const findResult = (facts: readonly PaidFact[]): TimedRecord<Result> | undefined =>
  factsOfType<Result>(facts, "paid.result").sort(
    (a, b) => Number(b.body.watched) - Number(a.body.watched) || compareByTime(a, b),
  )[0];

/** Finds the best of the answers to the payment proof when it was sent again, among those that arrived in time. */
function findShownAgain(
  followups: readonly TimedRecord<BodyOf<"paid.followup">>[],
  result: TimedRecord<Result>,
): ShownAgain | undefined {
  const shownAnswers = followups.flatMap(({ body, ...seen }): ShownAgain[] => {
    const isInTime = body.kind === "shown_again" && seen.t <= result.t + REPEATED_PROOF_WINDOW_MS;
    return isInTime && body.shown_again?.watched ? [{ ...seen, body: body.shown_again }] : [];
  });
  const rank = ({ body }: ShownAgain) => [body.delivered, body.outcome, body.delivery, body.schema_ok].map(toRank);
  return shownAnswers.sort((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    const firstDifference = x.findIndex((value, i) => value !== y[i]);
    return firstDifference < 0 ? compareByTime(a, b) : y[firstDifference]! - x[firstDifference]!;
  })[0];
}

/**
 * Finds the call's Transfer on the chain: preferably a final one, else the one that was seen first.
 * @param hasFinality true if a later record reports that the Transfer has become final
 */
function findSettlement(facts: readonly PaidFact[], hasFinality: boolean) {
  const settlements = factsOfType<BodyOf<"settlement">>(facts, "settlement");
  const firstSettlement = [...settlements].sort(
    (a, b) => Number(b.body.final) - Number(a.body.final) || compareByTime(a, b),
  )[0];
  if (!firstSettlement) return null;
  const { tx, block_number, block_time, network, asset, from, to, amount_atomic, nonce, as_quoted } =
    firstSettlement.body;
  const isFinal = settlements.some(({ body }) => body.final) || hasFinality;
  return { tx, block_number, block_time, network, asset, from, to, amount_atomic, nonce, as_quoted, final: isFinal };
}

/** Did bytes of an answer arrive at the first request that was no 402 and no wall? */
const hasAnswerBegun = (result: Result | undefined): boolean =>
  result !== undefined && result.response_bytes > 0 && result.status !== 402 && !result.wall;

/**
 * Returns the score of a call's outcome: 0 if the right answer was known and the call `ended` without an answer, else
 * the recorded `outcome`.
 */
const scoreOutcome = (input: string, ended: boolean, delivered: boolean, outcome: number | null): number | null =>
  input === "known_answer" && ended && !delivered ? (outcome ?? 0) : outcome;

const allTrue = (values: readonly (boolean | null | undefined)[]): boolean | null => {
  const knownValues = values.filter((value) => value !== null && value !== undefined);
  return knownValues.length === 0 ? null : knownValues.every(Boolean);
};

/**
 * Computes a paid call's row from some of its records, in any order (records.md, Evidence). sql/samples/paid computes
 * the current row in the lake. This function computes it as of any position of the log, since a card may have been
 * graded between two of the records.
 */
export function paidState(intent: TimedRecord<BodyOf<"paid.intent">>, facts: readonly PaidFact[]): PaidState {
  // Clocks of machines differ, so a record may have a time a little before its call's. A record more than a day
  // before the call belongs to another call.
  const ownFacts = facts.filter(({ t }) => t >= intent.t - DAY_MS);
  const followups = factsOfType<BodyOf<"paid.followup">>(ownFacts, "paid.followup");
  const result = findResult(ownFacts);
  const resultBody = result?.body;
  const shownAgain = result && findShownAgain(followups, result);
  const settlement = findSettlement(
    ownFacts,
    followups.some(({ body }) => body.kind === "finality"),
  );
  const settled = settlement?.final ?? false;
  const isDeliveredAtOnce = resultBody?.delivered ?? false;
  const isDeliveredLater = !isDeliveredAtOnce && (shownAgain?.body.delivered ?? false);
  // The answer began and was cut off, and no later one arrived. It scores 0, but counts as delivered, not as a theft.
  const isPartial = !isDeliveredAtOnce && !isDeliveredLater && hasAnswerBegun(resultBody);
  const countedAnswer = isDeliveredLater && shownAgain ? shownAgain.body : resultBody;
  const times = (
    isDeliveredLater ? [shownAgain?.body.latency_ms, resultBody?.latency_ms] : [resultBody?.latency_ms]
  ).filter((ms) => typeof ms === "number");
  // True when the failure cannot be blamed on the seller: our process did not see how the call ended, or the money
  // left, no answer arrived, and the proof was not sent again.
  const isUnseen = !resultBody?.watched || (settled && !isDeliveredAtOnce && !shownAgain);
  const refund = followups.filter(({ body }) => body.kind === "refund").sort(compareByTime)[0];
  return {
    fault: isUnseen ? "ours" : (resultBody?.fault ?? null),
    live: resultBody?.live ?? true,
    honest: allTrue([resultBody?.honest, intent.body.first_leg.honest, settlement?.as_quoted]),
    settled,
    delivered: isDeliveredAtOnce || isDeliveredLater || isPartial,
    refunded: refund !== undefined,
    delivery: isPartial ? 0 : (countedAnswer?.delivery ?? null),
    outcome: scoreOutcome(
      intent.body.input,
      resultBody !== undefined,
      isDeliveredAtOnce || isDeliveredLater,
      countedAnswer?.outcome ?? null,
    ),
    schema_ok: countedAnswer?.schema_ok ?? null,
    // The longer time counts, so that an answer that arrived only at the second request does not look fast.
    latency_ms: times.length === 0 ? null : Math.max(...times),
    response_sha256: countedAnswer?.response_sha256 ?? null,
    watched: resultBody?.watched ?? null,
    ended: resultBody?.ended ?? null,
    status: countedAnswer?.status ?? null,
    checks: countedAnswer?.checks ?? null,
    differs: resultBody?.differs ?? null,
    control: resultBody?.control ?? null,
    shown_again: shownAgain !== undefined,
    settlement,
    refund: refund?.body.refund ?? null,
  };
}
