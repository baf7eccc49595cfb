import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { AsOf, Blocks, Rail, Settlement, SignedPayment } from "../../../infra/rails/rails.ts";
import { REPEATED_PROOF_WINDOW_MS } from "../../3-grade/params.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Call } from "../call.ts";
import { didOurStallEndIt, type ExchangeDeps, type ExchangeResult, exchange } from "../probe/exchange.ts";
import { stockClientName } from "../probe/stock.ts";
import { type Evaluation, type Expectation, evaluate } from "../reading/checks.ts";
import { createFollowupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { Prepared } from "./sign.ts";

/** A signed payment with its call, and what is needed to send its proof again and to evaluate the answer. */
export interface Payment {
  /** Event id of the intent. */
  eventId: string;
  cap: string;
  call: Call;
  intent: BodyOf<"paid.intent">;
  signed: SignedPayment;
  prepared: Prepared;
  expectation: Expectation;
  /** Time for the whole exchange of the paid request, ms. */
  deadlineMs: number;
}

/**
 * Returns true if this process ended the connection, and also if it failed to send (`refused` without a reason). Then it
 * is not known how the call would have ended. Returns false if the end of the call was observed.
 */
export const isUnobserved = (tools: Pick<Tools, "signal">, result: EgressResult): boolean =>
  result.outcome === "refused" ? result.reason === undefined : result.outcome !== "answered" && !!tools.signal?.aborted;

/** Sends the request with the signed payment, both for the first time and for each repetition. */
export async function sendPaidRequest(tools: Tools, payment: Payment): Promise<ExchangeResult> {
  const { headerName: header, headerValue: value } = payment.signed;
  // A shutdown does not abort this request. Once money may move, a call whose end we do not observe counts as our own
  // fault.
  const options = {
    profile: "paid" as const,
    deadlineMs: payment.deadlineMs,
    payment: { header, value, form: tools.paymentForms.get(payment.cap) ?? payment.prepared.probe.paymentForm },
    stock: stockClientName(payment.cap, payment.call),
  };
  const exchanged = await exchange(tools, payment.prepared.request, options);
  const { result, mcp } = exchanged;
  const form = mcp?.recordMembers.payment_forms?.at(-1);
  const isTaken = result.outcome === "answered" && result.status !== 402;
  if (form && isTaken && !payment.call.blind) tools.paymentForms.set(payment.cap, form);
  return exchanged;
}

/**
 * Evaluates the answer in the reader's thread, which can be stopped. An answer that cannot be read scores 0. If our own
 * event loop was stalled meanwhile, no latency is recorded.
 */
export async function evaluateAnswer(
  { reader }: Pick<ExchangeDeps, "reader">,
  { expectation }: Payment,
  { result, loop }: ExchangeResult,
  isRepeated = false,
): Promise<Evaluation> {
  const readResult = await reader.ask("evaluate", { result, want: expectation, again: isRepeated });
  const evaluation = readResult.ok ? readResult.value : evaluate(result, expectation, null, isRepeated);
  return loop.stoodStill ? { ...evaluation, latency_ms: null } : evaluation;
}

/** Lowest score `delivery` with which a repeated request counts as answered (as in is_passed, sql/tables/rules). */
const MIN_DELIVERY = 0.5;

/**
 * Classifies the answer to a request that was repeated with the same payment proof.
 * @param firstSha256 sha256 of the first answer; null if there was none
 */
export function classifyRetry(
  { status, delivered, delivery, response_sha256 }: Omit<Evaluation, "wall">,
  firstSha256: string | null,
): NonNullable<BodyOf<"paid.followup">["retried"]> {
  if (delivered && (delivery ?? 0) >= MIN_DELIVERY) {
    return { outcome: "answered", status, same_bytes: firstSha256 === null ? null : response_sha256 === firstSha256 };
  }
  const isRefused = status !== null && status >= 400 && status < 500;
  return { outcome: status === 402 ? "asked_again" : isRefused ? "refused" : "failed", status, same_bytes: null };
}

/**
 * Sends a paid request with its proof once more. `watched` is false when the end of the request was not observed.
 * Then the result says nothing about the seller.
 */
export async function sendProofOnce(tools: Tools, payment: Payment, clock: Clock) {
  const exchanged = await sendPaidRequest(tools, payment);
  const { wall, ...evaluation } = await evaluateAnswer(tools, payment, exchanged, true);
  const control = evaluation.delivered ? null : await tools.control.call(clock);
  const isObserved = control?.ok !== false && !isUnobserved(tools, exchanged.result) && !didOurStallEndIt(exchanged);
  return { evaluation, wall, control, watched: isObserved };
}

/** The members of an evaluation that decide about re-tests. */
export type RetestOutcome = Pick<Evaluation, "delivered" | "delivery" | "outcome">;

/** Pauses before each repeated request, ms of the observer's clock. */
const PROOF_PAUSES_MS = [5_000, 60_000, 240_000];

/**
 * Sends the request of a payment that settled without an answer again, with the proof (the same signed bytes): up to
 * three times within ten minutes, until an answer is received. A nonce moves money only once, so the payment cannot
 * settle twice. An honest seller whose first answer was lost can answer now. Each repetition is recorded.
 */
export async function resendProof(tools: Tools, payment: Payment, clock: Clock): Promise<RetestOutcome> {
  const startedAt = clock.now().getTime();
  let lastOutcome: RetestOutcome = { delivered: false, delivery: null, outcome: payment.expectation.known ? 0 : null };
  for (let n = 0; n < PROOF_PAUSES_MS.length; n++) {
    await clock.sleep(PROOF_PAUSES_MS[n]!, tools.signal);
    if (clock.now().getTime() - startedAt >= REPEATED_PROOF_WINDOW_MS) break;
    const { evaluation, wall, control, watched } = await sendProofOnce(tools, payment, clock);
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
    lastOutcome = evaluation;
    if (evaluation.delivered) break;
  }
  return lastOutcome;
}

/**
 * The state of a payment on the chain. If `chainError` is set, the chain could not be read, and it is not known whether
 * the payment settled.
 */
export interface ChainView {
  /** The Transfer (the payment on the chain); null if none was found. */
  settlement: Settlement | null;
  chainError: string | null;
  /** The newest and the final block of the chain when it was searched; absent if it could not be read. */
  asOf?: Blocks;
  /** Why the seller could not settle the payment, if that is our own fault. */
  whyUnsettleable?: string;
}

/** The members of an intent by which its payment is found on the chain. */
type Authorization = Pick<BodyOf<"paid.intent">, "wallet" | "nonce" | "since_block" | "quote">;

/** Converts a settlement record to the Transfer (the payment on the chain) that it describes. */
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

/** Searches the chain once for the Transfer of one payment authorization. */
export async function findSettlement(rail: Pick<Rail, "settlementOf">, intent: Authorization): Promise<ChainView> {
  try {
    const { network, asset } = intent.quote;
    const query = { from: intent.wallet, nonce: intent.nonce, sinceBlock: intent.since_block, network, asset };
    const { value: transfer, ...asOf } = await rail.settlementOf(query);
    return { settlement: transfer, chainError: null, asOf };
  } catch (error) {
    return { settlement: null, chainError: (error as Error).message ?? String(error) };
  }
}

/**
 * Searches the chain for the Transfer, and again after each pause (real ms, since a chain's time is never simulated)
 * until it is found. The seller's own receipt is not used. Payments that settle later are found by reconcile.ts.
 */
export async function pollSettlement(
  rail: Pick<Rail, "settlementOf">,
  intent: Authorization,
  pausesMs: readonly number[],
): Promise<ChainView> {
  let view = await findSettlement(rail, intent);
  for (const pause of pausesMs) {
    if (view.settlement) break;
    await systemClock.sleep(pause);
    view = await findSettlement(rail, intent);
  }
  return view;
}

/**
 * Checks whether a payment that got no answer could not settle through a fault of ours. There are two such faults: the
 * chain's time is before the time from which our signature is valid; or the wallet holds too little, since it pays
 * several calls at once. The second is not considered for a blind wallet (one that the seller does not know as ours):
 * it pays only one payee, and that payee could have emptied it by settling an earlier payment late.
 * @returns `view` with `whyUnsettleable` if the fault is ours; a newer view if the Transfer was searched again; else
 * `view` unchanged
 */
export async function checkOwnFault(
  rail: Rail,
  { call, intent, signed }: Payment,
  view: ChainView,
): Promise<ChainView> {
  if (view.settlement || !view.asOf) return view;
  const { time } = view.asOf.head;
  if (time < signed.validAfter)
    return {
      ...view,
      whyUnsettleable: `our clock is ahead: the chain is at ${time}, valid after ${signed.validAfter}`,
    };
  if (call.blind) return view;
  let balance: AsOf<bigint>;
  try {
    const { network, asset } = intent.quote;
    balance = await rail.balance(signed.from, { network, asset });
  } catch (error) {
    return { settlement: null, chainError: (error as Error).message ?? String(error) };
  }
  if (balance.value >= signed.amountAtomic) return view;
  // The balance may be below the price because this payment has settled: the node that searched for the Transfer may be
  // behind the node that returned the balance. So the Transfer is searched again.
  const secondView = await findSettlement(rail, intent);
  if (secondView.settlement || !secondView.asOf) return secondView;
  if (secondView.asOf.head.number < balance.head.number)
    return {
      settlement: null,
      chainError: `one node is at block ${balance.head.number}, another at ${secondView.asOf.head.number}`,
    };
  return { ...secondView, whyUnsettleable: "our wallet holds less than the price" };
}
