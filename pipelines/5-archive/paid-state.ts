import { SHOWN_AGAIN_MS } from "../3-grade/params.ts";
import type { BodyOf } from "../record/bodies.ts";
import { DAY_MS } from "../record/time.ts";

/** One record of a paid call, in the form of the lake. */
export interface PaidFact {
  type: string;
  event_id: string;
  /** Unix ms. */
  t: number;
  offset: number;
  body: unknown;
  /** Is it among the records that the file is made for? */
  member: boolean;
}

/** What the records of a paid call so far tell. Later records may change all of these members. */
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
  /** Members that are in the line and not in the row of a sample. */
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

interface Seen<T> {
  t: number;
  event_id: string;
  body: T;
}
type Result = BodyOf<"paid.result">;
type Again = Seen<NonNullable<BodyOf<"paid.followup">["shown_again"]>>;

const earlier = (a: Seen<unknown>, b: Seen<unknown>): number =>
  a.t - b.t || (a.event_id < b.event_id ? -1 : a.event_id > b.event_id ? 1 : 0);
const orLow = (x: number | boolean | null): number => (x === null ? -1 : Number(x));

const pick = <T>(facts: readonly PaidFact[], type: string): Seen<T>[] =>
  facts.filter((fact) => fact.type === type).map((fact) => ({ ...fact, body: fact.body as T }));

/** The call's result: one that was watched, else the one that a restart wrote. */
const resultOf = (facts: readonly PaidFact[]): Seen<Result> | undefined =>
  pick<Result>(facts, "paid.result").sort(
    (a, b) => Number(b.body.watched) - Number(a.body.watched) || earlier(a, b),
  )[0];

/** The best answer among those that came in time when the proof was shown again. */
function againOf(followups: readonly Seen<BodyOf<"paid.followup">>[], result: Seen<Result>): Again | undefined {
  const shown = followups.flatMap(({ body, ...seen }): Again[] => {
    const inTime = body.kind === "shown_again" && seen.t <= result.t + SHOWN_AGAIN_MS;
    return inTime && body.shown_again?.watched ? [{ ...seen, body: body.shown_again }] : [];
  });
  const rank = ({ body }: Again) => [body.delivered, body.outcome, body.delivery, body.schema_ok].map(orLow);
  return shown.sort((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    const at = x.findIndex((value, i) => value !== y[i]);
    return at < 0 ? earlier(a, b) : y[at]! - x[at]!;
  })[0];
}

/** The call's Transfer: a final one, else the one that was seen first. */
function moneyOf(facts: readonly PaidFact[], finality: boolean) {
  const seen = pick<BodyOf<"settlement">>(facts, "settlement");
  const first = [...seen].sort((a, b) => Number(b.body.final) - Number(a.body.final) || earlier(a, b))[0];
  if (!first) return null;
  const { tx, block_number, block_time, network, asset, from, to, amount_atomic, nonce, as_quoted } = first.body;
  const final = seen.some(({ body }) => body.final) || finality;
  return { tx, block_number, block_time, network, asset, from, to, amount_atomic, nonce, as_quoted, final };
}

/** The score of the known answer; 0 when no answer came at all. */
const outcomeOf = (input: string, ended: boolean, delivered: boolean, outcome: number | null): number | null =>
  input === "known_answer" && ended && !delivered ? (outcome ?? 0) : outcome;

const all = (values: readonly (boolean | null | undefined)[]): boolean | null => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length === 0 ? null : known.every(Boolean);
};

/**
 * A paid call's row from some of its records, in any order (records.md, Evidence). sql/samples/paid computes this in
 * the lake for now; here it is computed for any position of the log, since a card may have been graded between two of
 * the records.
 */
export function paidState(intent: Seen<BodyOf<"paid.intent">>, facts: readonly PaidFact[]): PaidState {
  // Clocks of two machines differ. A record from more than a day before the call belongs to another call.
  const known = facts.filter(({ t }) => t >= intent.t - DAY_MS);
  const followups = pick<BodyOf<"paid.followup">>(known, "paid.followup");
  const result = resultOf(known);
  const r = result?.body;
  const again = result && againOf(followups, result);
  const money = moneyOf(
    known,
    followups.some(({ body }) => body.kind === "finality"),
  );
  const settled = money?.final ?? false;
  const atOnce = r?.delivered ?? false;
  const later = !atOnce && (again?.body.delivered ?? false);
  const came = later && again ? again.body : r;
  const times = (later ? [again?.body.latency_ms, r?.latency_ms] : [r?.latency_ms]).filter(
    (ms) => typeof ms === "number",
  );
  // Nobody saw the end; or the money left, no answer came and the proof was not shown again: this accuses nobody.
  const unseen = !r?.watched || (settled && !atOnce && !again);
  const refund = followups.filter(({ body }) => body.kind === "refund").sort(earlier)[0];
  return {
    fault: unseen ? "ours" : (r?.fault ?? null),
    live: r?.live ?? true,
    honest: all([r?.honest, intent.body.first_leg.honest, money?.as_quoted]),
    settled,
    delivered: atOnce || later,
    refunded: refund !== undefined,
    delivery: came?.delivery ?? null,
    outcome: outcomeOf(intent.body.input, r !== undefined, atOnce || later, came?.outcome ?? null),
    schema_ok: came?.schema_ok ?? null,
    // The slower time counts, so that an answer which came at the second showing does not look quick.
    latency_ms: times.length === 0 ? null : Math.max(...times),
    response_sha256: came?.response_sha256 ?? null,
    watched: r?.watched ?? null,
    ended: r?.ended ?? null,
    status: came?.status ?? null,
    checks: came?.checks ?? null,
    differs: r?.differs ?? null,
    control: r?.control ?? null,
    shown_again: again !== undefined,
    settlement: money,
    refund: refund?.body.refund ?? null,
  };
}
