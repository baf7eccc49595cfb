import { type Clock, systemClock } from "../../../infra/clock.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import { plannedSlot } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import { type Call, intentId, seedOf } from "../call.ts";
import type { ClassQuestion } from "../classes/asking.ts";
import { clean } from "../json.ts";
import { isPassing } from "../plan/steps.ts";
import { excuseProbe, isMethodAssumed } from "../probe/methods.ts";
import { probe } from "../probe/probe.ts";
import { buildRequest, readSellerOutput } from "../probe/request.ts";
import { stockClientName } from "../probe/stock.ts";
import { PAID } from "../queue.ts";
import { createDraft, NotConfirmed, Recorder } from "../recorder.ts";
import { createLostRow, createMcpPaidRow, createProbeRow, createSettlementRow } from "../rows.ts";
import { checkSignedReceipt } from "../terms/signed.ts";
import type { Tools } from "../tools.ts";
import {
  type ChainView,
  checkOwnFault,
  evaluateAnswer,
  type Payment,
  pollSettlement,
  type RetestOutcome,
  resendProof,
  sendPaidRequest,
} from "./payment.ts";
import { createResultBody } from "./result.ts";
import { measureRetry } from "./retry.ts";
import { type Prepared, sign } from "./sign.ts";

/** How a planned paid call ended. It decides about re-tests. */
export interface PaidCallResult {
  /**
   * True if a payment was sent, or may have been sent before our own code failed. False if none was sent: there was no
   * 402 to pay, we could not pay it, or the intent of another observer was first.
   */
  mayHavePaid: boolean;
  /** Does the call count as a sample? False when nothing was paid. */
  isSample: boolean;
  /** Does the answer pass? False when nothing was paid. */
  isPassing: boolean;
  /**
   * The payment and its state on the chain, which the reconciler (reconcile.ts) follows from then on. `excused`: the
   * result has fault `ours`. Absent when nothing was signed.
   */
  openPayment?: { payment: Payment; chain: ChainView; delivered: boolean; excused: boolean };
}

/**
 * Pays a call whose intent (the record that is written before a payment) is durable: sends the payment, evaluates the
 * answer, searches the chain for the settlement, and records the result.
 */
async function sendAndWatch(
  tools: Tools,
  payment: Payment,
  question: ClassQuestion,
  clock: Clock,
): Promise<PaidCallResult> {
  const sentAt = systemClock.monotonic();
  const exchanged = await sendPaidRequest(tools, payment);
  tools.metrics.time("touchstone_observe_paid_call_seconds", (systemClock.monotonic() - sentAt) / 1000);
  const endedUnixSeconds = Math.floor(systemClock.now().getTime() / 1000);
  const evaluation = await evaluateAnswer(tools, payment, exchanged);
  const polledChain = await pollSettlement(tools.rail, payment.intent, tools.settlePollMs);
  const chain = evaluation.delivered ? polledChain : await checkOwnFault(tools.rail, payment, polledChain);
  const needsControlCall = !evaluation.delivered || evaluation.delivery === 0;
  const control = needsControlCall ? await tools.control.call(clock) : null;
  const receipt = await checkSignedReceipt(exchanged.result.headers, payment.intent);
  const result = createResultBody(tools, payment, exchanged, evaluation, chain, control);
  const body = {
    ...result,
    ...(receipt ? { signed_receipt: receipt } : {}),
    ...(exchanged.result.outcome === "answered" ? { answered_time: endedUnixSeconds } : {}),
  };
  const slot = plannedSlot(payment.call.block, payment.call.minute);
  const rows = [createDraft({ type: "paid.result", cap: payment.cap, slot, at: clock.now(), body })];
  // All rows are in one append, so that a result is never recorded without the settlement that was already seen.
  if (chain.settlement) rows.push(createSettlementRow(payment, chain.settlement, clock.now()));
  if (exchanged.mcp) rows.push(createMcpPaidRow(payment, exchanged.mcp.recordMembers, clock.now()));
  await tools.recorder.append(rows);
  tools.metrics.count("touchstone_observe_paid_total", { fault: body.fault ?? "none" });
  if (chain.settlement)
    tools.metrics.count("touchstone_observe_paid_micro_total", {}, Number(chain.settlement.amountAtomic));
  logPayment(tools, payment, chain, body);
  tools.questions.noteControl(payment, question, isPassing(evaluation));
  const excused = body.fault === "ours";
  let lastOutcome: RetestOutcome = evaluation;
  if (chain.settlement && !evaluation.delivered && !excused) lastOutcome = await resendProof(tools, payment, clock);
  else if (!excused) await measureRetry(tools, payment, { chain, evaluation }, clock);
  const isSample = body.fault === null || body.fault === "blocked";
  if (isPassing(lastOutcome)) tools.passedInputs.set(`${payment.cap} ${payment.intent.request_sha256}`, true);
  return {
    mayHavePaid: true,
    isSample,
    isPassing: isPassing(lastOutcome),
    openPayment: { payment, chain, delivered: lastOutcome.delivered, excused },
  };
}

/**
 * Logs one line for a payment: the amount that left our wallet, or the signed amount while no Transfer was seen on the
 * chain.
 */
function logPayment(
  { logger }: Tools,
  { cap, call, eventId, intent }: Payment,
  { settlement: transfer }: ChainView,
  { fault, delivery }: { fault: string | null; delivery: number | null },
): void {
  const { network, amount_atomic: promisedAmount } = intent.quote;
  const logMembers = { cap, intent: eventId, kind: call.blind ? "blind" : "known", network };
  const amounts = transfer
    ? { paid_atomic: transfer.amountAtomic.toString(), tx: transfer.tx }
    : { promised_atomic: promisedAmount };
  logger.info(
    { ...logMembers, ...amounts, fault, delivery },
    transfer ? "a call was paid" : "a call was made; no payment was seen yet",
  );
}

/**
 * Records the first request of a planned paid call that was not paid. The record is a handshake (an exchange without
 * payment).
 */
async function recordUnpaid(
  tools: Tools,
  endpoint: ListedCap,
  call: Call,
  prepared: Prepared,
  at: Date,
  says?: string,
): Promise<PaidCallResult> {
  const { body, ...probeMembers } = prepared.probe;
  // The seller's answer is recorded, good or bad, even if it was our own fault that we did not pay.
  const bodyWithReason = { ...body, ...(says === undefined ? {} : { says: clean(says, 2000) }) };
  await tools.recorder.append([
    createProbeRow(endpoint.cap, call, "paid", { ...probeMembers, body: bodyWithReason }, at),
  ]);
  return { mayHavePaid: false, isSample: false, isPassing: false };
}

/**
 * Makes one planned paid call: first request, signature, durable intent, payment, evaluation, settlement. If the
 * payment settled and no answer was received, it sends the proof of payment again. The intent's id is computed from the
 * call, before any request.
 * @throws NotConfirmed when the log does not confirm a record. If that was the intent, no payment was sent. If it was a
 * later record, the intent stays open and is recorded as our own fault at the next start, since a seller is never
 * accused without records.
 */
export async function makePaidCall(
  allTools: Tools,
  listedEndpoint: ListedCap,
  call: Call,
  clock: Clock,
): Promise<PaidCallResult> {
  const controlStock = stockClientName(listedEndpoint.cap, call);
  const tools = controlStock === undefined ? allTools : { ...allTools, control: allTools.createControl(controlStock) };
  let endpoint = tools.intake.withSellerListing(listedEndpoint);
  const seed = seedOf(tools.secret, endpoint.cap, call);
  const at = clock.now();
  let question = await tools.questions.createQuestion(endpoint, null, seed);
  const firstRequest = buildRequest(endpoint, null, question);
  const stock = stockClientName(endpoint.cap, call);
  const egress = withRequestFields(tools.egress, { pool: PAID, ...(stock === undefined ? {} : { stock }) });
  const rereadListing = async () => {
    // Between the two requests of a blind call (one that the seller cannot recognise as ours) the listing is fetched
    // by that call's client too, so that the seller cannot link the call to us.
    endpoint = await tools.intake.rereadSeller(endpoint, clock, egress);
    return endpoint.sellerClaims;
  };
  const probeTools = { ...tools, egress, stock };
  const prepared: Prepared = {
    ...firstRequest,
    probe: await probe(probeTools, firstRequest.request, endpoint.sellerClaims, clock, rereadListing),
  };
  const terms = prepared.probe.read;
  const { state } = prepared.probe.body;
  if (isMethodAssumed(endpoint) && (state === "status" || state === "free")) {
    // GET was only our assumption, so its failure counts as our own. The endpoint's planned free probe searches for the
    // right method.
    prepared.probe = excuseProbe(prepared.probe, "no listing names a method, and GET met no 402");
  }
  if (!terms?.payable || prepared.probe.body.state !== "asked")
    return recordUnpaid(tools, endpoint, call, prepared, at);
  // The endpoint's input may be declared only in the 402, so the question is chosen again with the 402.
  if (firstRequest.input.kind === "synthetic") {
    question = await tools.questions.createQuestion(endpoint, terms.declared, seed);
    Object.assign(prepared, buildRequest(endpoint, terms.declared, question));
  }
  await tools.questions.recordMapping(endpoint, question, clock);
  const signResult = await sign(tools, endpoint, call, { ...prepared, question }, clock);
  if (!signResult.ok) return recordUnpaid(tools, endpoint, call, prepared, at, signResult.reason);
  const output = readSellerOutput(endpoint, terms.declared);
  const payment: Payment = {
    eventId: intentId(endpoint.cap, call),
    cap: endpoint.cap,
    call,
    intent: signResult.intent,
    signed: signResult.signed,
    prepared,
    expectation: {
      class: question.checker.name,
      known: prepared.input.known,
      schema: output.schema,
      mime: output.mime,
    },
    deadlineMs: signResult.deadlineMs,
  };
  const slot = plannedSlot(call.block, call.minute);
  const intentRow = createDraft({
    type: "paid.intent",
    cap: endpoint.cap,
    slot,
    at: signResult.observedAt,
    body: signResult.intent,
  });
  if (Recorder.idOf(intentRow) !== payment.eventId) throw new Error("the intent's id is not the call's");
  tools.inFlight.add(payment.eventId);
  try {
    await tools.recorder.append([intentRow]);
    if (tools.firstIntents && !(await isFirstIntent(tools.firstIntents, payment))) {
      // The intent of another observer was first in the log, and that observer pays. Our signed payment is not sent.
      tools.metrics.count("touchstone_observe_slots_lost_total");
      return { mayHavePaid: false, isSample: false, isPassing: false };
    }
    return await sendAndWatch(tools, payment, question, clock);
  } catch (error) {
    if (error instanceof NotConfirmed) throw error;
    return await recordLost(tools, payment, clock, error);
  } finally {
    tools.inFlight.delete(payment.eventId);
  }
}

/**
 * Is our intent the first one of this call in the log? Only the observer whose intent is first sends its payment.
 * @throws NotConfirmed when the log cannot be read. Then no payment is sent, and the intent is recorded as our own
 * fault later
 */
async function isFirstIntent(
  firstIntents: NonNullable<Tools["firstIntents"]>,
  { cap, eventId, intent }: Payment,
): Promise<boolean> {
  try {
    return await firstIntents.isFirst(cap, eventId, intent.nonce);
  } catch (error) {
    throw new NotConfirmed([eventId], error);
  }
}

/**
 * Records a call that failed through our own fault after its intent was written. Without this, only the next start
 * would record it.
 */
async function recordLost(tools: Tools, payment: Payment, clock: Clock, error: unknown): Promise<PaidCallResult> {
  tools.signal?.throwIfAborted();
  tools.logger.error({ err: error, intent: payment.eventId }, "a paid call could not be watched to its end");
  tools.metrics.count("touchstone_observe_paid_total", { fault: "ours" });
  await tools.recorder.append([createLostRow(payment, clock.now(), clean(`our own fault: ${String(error)}`, 2000))]);
  const openPayment = { payment, chain: { settlement: null, chainError: null }, delivered: false, excused: true };
  return { mayHavePaid: true, isSample: false, isPassing: false, openPayment };
}
