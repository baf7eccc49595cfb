import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { AsOf, Blocks, Rail, Settlement, SignedPayment } from "../../../infra/rails/rails.ts";
import { SHOWN_AGAIN_MS } from "../../3-grade/params.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Call } from "../call.ts";
import { didOurStallEndIt, type ExchangeDeps, type ExchangeResult, exchange } from "../probe/exchange.ts";
import { stockClientName } from "../probe/stock.ts";
import { type Evaluation, type Expectation, evaluate } from "../reading/checks.ts";
import { createFollowupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { Prepared } from "./sign.ts";

/** One payment that was sent, with everything that is needed to send its proof again and to evaluate the answer. */
export interface Payment {
  eventId: string;
  cap: string;
  call: Call;
  intent: BodyOf<"paid.intent">;
  signed: SignedPayment;
  prepared: Prepared;
  want: Expectation;
  deadlineMs: number;
}

/**
 * Did we ourselves end the connection, or fail to send (`refused` without a reason)? Then nobody saw how the call would
 * have ended.
 */
export const isCutOff = (tools: Pick<Tools, "signal">, result: EgressResult): boolean =>
  result.outcome === "refused" ? result.reason === undefined : result.outcome !== "answered" && !!tools.signal?.aborted;

/** Sends the request with the signed payment, both for the first time and for each repetition. */
export function send(means: ExchangeDeps, payment: Payment): Promise<ExchangeResult> {
  const { headerName: header, headerValue: value } = payment.signed;
  // A shutdown does not abort this request: once money may move, a call whose end we do not see is our own fault.
  const how = {
    profile: "paid" as const,
    deadlineMs: payment.deadlineMs,
    payment: { header, value },
    stock: stockClientName(payment.cap, payment.call),
  };
  return exchange(means, payment.prepared.request, how);
}

/**
 * Evaluates the answer in the reader's thread, which can be stopped. An answer that cannot be read scores 0. If our own
 * event loop was stalled meanwhile, no latency is recorded.
 */
export async function evaluateAnswer(
  { reader }: Pick<ExchangeDeps, "reader">,
  { want }: Payment,
  { result, loop }: ExchangeResult,
  again = false,
): Promise<Evaluation> {
  const read = await reader.ask("evaluate", { result, want, again });
  const evaluation = read.ok ? read.value : evaluate(result, want, null, again);
  return loop.stoodStill ? { ...evaluation, latency_ms: null } : evaluation;
}

/** Least score `delivery` for which an answer counts as delivered (sql/tables/rules, is_passed). */
const MIN_DELIVERY = 0.5;

/**
 * Classifies the answer to a repeated request with a payment proof. @param first sha256 of the first answer, or null
 */
export function classifyRetry(
  { status, delivered, delivery, response_sha256 }: Omit<Evaluation, "wall">,
  first: string | null,
): NonNullable<BodyOf<"paid.followup">["retried"]> {
  if (delivered && (delivery ?? 0) >= MIN_DELIVERY) {
    return { outcome: "answered", status, same_bytes: first === null ? null : response_sha256 === first };
  }
  const refused = status !== null && status >= 400 && status < 500;
  return { outcome: status === 402 ? "asked_again" : refused ? "refused" : "failed", status, same_bytes: null };
}

/**
 * Sends a paid request with its proof once more. `watched` is false when its end was not seen; then the result tells
 * nothing about the seller.
 */
export async function showOnce(tools: Tools, payment: Payment, clock: Clock) {
  const exchanged = await send(tools, payment);
  const { wall, ...evaluation } = await evaluateAnswer(tools, payment, exchanged, true);
  const control = evaluation.delivered ? null : await tools.control.call(clock);
  const watched = control?.ok !== false && !isCutOff(tools, exchanged.result) && !didOurStallEndIt(exchanged);
  return { evaluation, wall, control, watched };
}

/** The members of an evaluation that decide about re-tests. */
export type ShownOutcome = Pick<Evaluation, "delivered" | "delivery" | "outcome">;

/** Pauses before each repeated request, ms of the record's time. */
const SHOW_AGAIN_PAUSES_MS = [5_000, 60_000, 240_000];

/**
 * For a payment whose money left and for which no answer came: sends the request with the proof (the same signed bytes)
 * again, up to three times within ten minutes, until an answer comes. The payment's nonce moves money only once, so it
 * cannot settle twice. An honest seller whose first answer was lost answers now. Each repetition is recorded.
 */
export async function showAgain(tools: Tools, payment: Payment, clock: Clock): Promise<ShownOutcome> {
  const began = clock.now().getTime();
  let last: ShownOutcome = { delivered: false, delivery: null, outcome: payment.want.known ? 0 : null };
  for (let n = 0; n < SHOW_AGAIN_PAUSES_MS.length; n++) {
    await clock.sleep(SHOW_AGAIN_PAUSES_MS[n]!, tools.signal);
    if (clock.now().getTime() - began >= SHOWN_AGAIN_MS) break;
    const { evaluation, wall, control, watched } = await showOnce(tools, payment, clock);
    const body: BodyOf<"paid.followup"> = {
      of: payment.eventId,
      kind: "shown_again",
      shown_again: { ...evaluation, watched },
      ...(watched ? { retried: classifyRetry(evaluation, null) } : {}),
      ...(control ? { control } : {}),
      ...(wall ? { wall } : {}),
    };
    await tools.recorder.append([createFollowupRow(payment.cap, body, clock.now(), n)]);
    tools.metrics.count("touchstone_observe_shown_again_total", { delivered: `${evaluation.delivered}` });
    last = evaluation;
    if (evaluation.delivered) break;
  }
  return last;
}

/**
 * What the chain shows about a payment. `down`: why the chain could not be read; then it is not known whether the
 * payment settled.
 */
export interface ChainView {
  seen: Settlement | null;
  down: string | null;
  /** The blocks as of which the chain was read; absent where it was not read. */
  asOf?: Blocks;
  /** Why the seller could not settle the payment, where that is our own fault. */
  unable?: string;
}

type Authorization = Pick<BodyOf<"paid.intent">, "wallet" | "nonce" | "since_block" | "quote">;

/** Converts a settlement record to the Transfer that it describes. */
export const settlementOf = (row: BodyOf<"settlement">): Settlement => ({
  tx: row.tx,
  blockNumber: row.block_number,
  blockTime: row.block_time,
  from: row.from,
  to: row.to,
  amountAtomic: BigInt(row.amount_atomic),
  asset: row.asset,
  network: row.network,
  final: row.final,
});

/** Looks once on the chain for the Transfer of one payment authorization. */
export async function lookUp(rail: Pick<Rail, "settlementOf">, intent: Authorization): Promise<ChainView> {
  try {
    const { network, asset } = intent.quote;
    const query = { from: intent.wallet, nonce: intent.nonce, sinceBlock: intent.since_block, network, asset };
    const { value: seen, ...asOf } = await rail.settlementOf(query);
    return { seen, down: null, asOf };
  } catch (error) {
    return { seen: null, down: (error as Error).message ?? String(error) };
  }
}

/**
 * Looks for the Transfer on the chain, again after each pause (real ms, since a chain's time is never simulated), until
 * it is found. The seller's own receipt is not used. reconcile.ts finds payments that settle later.
 */
export async function pollSettlement(
  rail: Pick<Rail, "settlementOf">,
  intent: Authorization,
  pausesMs: readonly number[],
): Promise<ChainView> {
  let view = await lookUp(rail, intent);
  for (const pause of pausesMs) {
    if (view.seen) break;
    await systemClock.sleep(pause);
    view = await lookUp(rail, intent);
  }
  return view;
}

/**
 * For a payment without answer and without settlement: checks whether that is our own fault. The chain's time may be
 * before the time from which our signature is valid. A known wallet pays several calls at once and may be empty by now.
 * A blind wallet (which the seller does not know as ours) pays only one payee, and that payee could empty it by
 * settling late, so its balance is no excuse.
 */
export async function checkOwnFault(
  rail: Rail,
  { call, intent, signed }: Payment,
  view: ChainView,
): Promise<ChainView> {
  if (view.seen || !view.asOf) return view;
  const { time } = view.asOf.head;
  if (time < signed.validAfter)
    return { ...view, unable: `our clock is ahead: the chain is at ${time}, valid after ${signed.validAfter}` };
  if (call.blind) return view;
  let balance: AsOf<bigint>;
  try {
    const { network, asset } = intent.quote;
    balance = await rail.balance(signed.from, { network, asset });
  } catch (error) {
    return { seen: null, down: (error as Error).message ?? String(error) };
  }
  if (balance.value >= signed.amountAtomic) return view;
  // The balance may be below the price because this payment has settled: the node that was asked for the Transfer may
  // be behind the node that was asked for the balance. So the Transfer is looked up again.
  const secondView = await lookUp(rail, intent);
  if (secondView.seen || !secondView.asOf) return secondView;
  if (secondView.asOf.head.number < balance.head.number)
    return {
      seen: null,
      down: `one node is at block ${balance.head.number}, another at ${secondView.asOf.head.number}`,
    };
  return { ...secondView, unable: "our wallet holds less than the price" };
}
