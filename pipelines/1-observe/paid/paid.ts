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
import { requestOf, sellerOutput } from "../probe/request.ts";
import { stockClientName } from "../probe/stock.ts";
import { PAID } from "../queue.ts";
import { draft, NotRecorded, Recorder } from "../recorder.ts";
import { createLostRow, createMcpPaidRow, createProbeRow, createSettlementRow } from "../rows.ts";
import { checkSignedReceipt } from "../terms/signed.ts";
import type { Tools } from "../tools.ts";
import {
  type ChainView,
  checkOwnFault,
  evaluateAnswer,
  type Payment,
  pollSettlement,
  type ShownOutcome,
  send,
  showAgain,
} from "./payment.ts";
import { resultBody } from "./result.ts";
import { measureRetry } from "./retry.ts";
import { type Prepared, sign } from "./sign.ts";

/** How a planned paid call ended. It decides about re-tests. */
export interface PaidEnd {
  /** False when nothing was signed: there was no 402 to pay, or we could not pay it. */
  paid: boolean;
  /** Does the row count as a sample, and does it pass? Both false when nothing was paid. */
  counts: boolean;
  pass: boolean;
  /** What the reconciler takes over: the payment and what the chain showed about it. Absent when nothing was signed. */
  open?: { payment: Payment; chain: ChainView; delivered: boolean; excused: boolean };
}

/**
 * Pays a call whose intent is durable: sends the payment, evaluates the answer, looks for the settlement on the chain,
 * and records the result.
 */
async function payAndWatch(tools: Tools, payment: Payment, asked: ClassQuestion, clock: Clock): Promise<PaidEnd> {
  const sent = systemClock.monotonic();
  const exchanged = await send(tools, payment);
  tools.metrics.time("touchstone_observe_paid_call_seconds", (systemClock.monotonic() - sent) / 1000);
  const endedTime = Math.floor(systemClock.now().getTime() / 1000);
  const evaluation = await evaluateAnswer(tools, payment, exchanged);
  const polled = await pollSettlement(tools.rail, payment.intent, tools.settlePollMs);
  const chain = evaluation.delivered ? polled : await checkOwnFault(tools.rail, payment, polled);
  const failed = !evaluation.delivered || evaluation.delivery === 0;
  const control = failed ? await tools.control.call(clock) : null;
  const receipt = await checkSignedReceipt(exchanged.result.headers, payment.intent);
  const result = resultBody(tools, payment, exchanged, evaluation, chain, control);
  const body = {
    ...result,
    ...(receipt ? { signed_receipt: receipt } : {}),
    ...(exchanged.result.outcome === "answered" ? { answered_time: endedTime } : {}),
  };
  const slot = plannedSlot(payment.call.block, payment.call.minute);
  const rows = [draft({ type: "paid.result", cap: payment.cap, slot, at: clock.now(), body })];
  // One append for all rows, so that a result is never recorded without the settlement that was seen with it.
  if (chain.seen) rows.push(createSettlementRow(payment, chain.seen, clock.now()));
  if (exchanged.mcp) rows.push(createMcpPaidRow(payment, exchanged.mcp.seen, clock.now()));
  await tools.recorder.append(rows);
  tools.metrics.count("touchstone_observe_paid_total", { fault: body.fault ?? "none" });
  if (chain.seen) tools.metrics.count("touchstone_observe_paid_micro_total", {}, Number(chain.seen.amountAtomic));
  logPayment(tools, payment, chain, body);
  tools.asking.noteControl(payment, asked, isPassing(evaluation));
  const excused = body.fault === "ours";
  let shown: ShownOutcome = evaluation;
  if (chain.seen && !evaluation.delivered && !excused) shown = await showAgain(tools, payment, clock);
  else if (!excused) await measureRetry(tools, payment, { chain, evaluation }, clock);
  const counts = body.fault === null || body.fault === "blocked";
  if (isPassing(shown)) tools.passed.set(`${payment.cap} ${payment.intent.request_sha256}`, true);
  return {
    paid: true,
    counts,
    pass: isPassing(shown),
    open: { payment, chain, delivered: shown.delivered, excused },
  };
}

/**
 * Logs one line for a payment: the amount that left our wallet, or the signed amount while no Transfer was seen on the
 * chain.
 */
function logPayment(
  { logger }: Tools,
  { cap, call, eventId, intent }: Payment,
  { seen }: ChainView,
  { fault, delivery }: { fault: string | null; delivery: number | null },
): void {
  const { network, amount_atomic: promised } = intent.quote;
  const logged = { cap, intent: eventId, kind: call.blind ? "blind" : "known", network };
  const sum = seen ? { paid_atomic: seen.amountAtomic.toString(), tx: seen.tx } : { promised_atomic: promised };
  logger.info(
    { ...logged, ...sum, fault, delivery },
    seen ? "a call was paid" : "a call was made; no payment was seen yet",
  );
}

/** Records the first request of a planned paid call that was not paid, as a handshake. */
async function recordUnpaid(
  tools: Tools,
  one: ListedCap,
  call: Call,
  prepared: Prepared,
  at: Date,
  says?: string,
): Promise<PaidEnd> {
  const { body, ...seen } = prepared.probe;
  // What the seller answered stays in the record, good or bad, even if it was our own fault that we did not pay.
  const bodyWithReason = { ...body, ...(says === undefined ? {} : { says: clean(says, 2000) }) };
  await tools.recorder.append([createProbeRow(one.cap, call, "paid", { ...seen, body: bodyWithReason }, at)]);
  return { paid: false, counts: false, pass: false };
}

/**
 * Makes one planned paid call: first request, signature, durable intent, payment, evaluation, settlement. If the money
 * left and no answer came, it sends the proof of payment again. The intent's id follows from the call, so it is known
 * before.
 * @throws NotRecorded when the log refuses a record. If that was the intent, no payment was sent. If it was a later
 * record, the intent stays open and is recorded as our own fault at the next start, since a seller is never accused
 * without records.
 */
export async function makePaidCall(all: Tools, listed: ListedCap, call: Call, clock: Clock): Promise<PaidEnd> {
  const source = stockClientName(listed.cap, call);
  const tools = source === undefined ? all : { ...all, control: all.controlFrom(source) };
  let one = tools.intake.current(listed);
  const seed = seedOf(tools.secret, one.cap, call);
  const at = clock.now();
  let asked = await tools.asking.ask(one, null, seed);
  const before = requestOf(one, null, asked);
  const stock = stockClientName(one.cap, call);
  const egress = withRequestFields(tools.egress, { pool: PAID, ...(stock === undefined ? {} : { stock }) });
  const relist = async () => {
    // Between the two requests of a blind call the listing is fetched with that call's client too, so that it cannot be
    // linked to us.
    one = await tools.intake.rereadSeller(one, clock, egress);
    return one.sellerClaims;
  };
  const first = { ...tools, egress, stock };
  const prepared: Prepared = { ...before, probe: await probe(first, before.request, one.sellerClaims, clock, relist) };
  const read = prepared.probe.read;
  const { state } = prepared.probe.body;
  if (isMethodAssumed(one) && (state === "status" || state === "free")) {
    // The free probe of the endpoint searches for the right method.
    prepared.probe = excuseProbe(prepared.probe, "no listing names a method, and GET met no 402");
  }
  if (!read?.payable || prepared.probe.body.state !== "asked") return recordUnpaid(tools, one, call, prepared, at);
  // Only the 402 may declare the endpoint's input, so the question is asked again with it.
  if (before.input.kind === "synthetic") {
    asked = await tools.asking.ask(one, read.declared, seed);
    Object.assign(prepared, requestOf(one, read.declared, asked));
  }
  await tools.asking.recordMapping(one, asked, clock);
  const ready = await sign(tools, one, call, { ...prepared, asked }, clock);
  if (!ready.ok) return recordUnpaid(tools, one, call, prepared, at, ready.says);
  const says = sellerOutput(one, read.declared);
  const payment: Payment = {
    eventId: intentId(one.cap, call),
    cap: one.cap,
    call,
    intent: ready.intent,
    signed: ready.signed,
    prepared,
    want: { class: asked.checker.name, known: prepared.input.known, schema: says.schema, mime: says.mime },
    deadlineMs: ready.deadlineMs,
  };
  const slot = plannedSlot(call.block, call.minute);
  const row = draft({ type: "paid.intent", cap: one.cap, slot, at: ready.observedAt, body: ready.intent });
  if (Recorder.idOf(row) !== payment.eventId) throw new Error("the intent's id is not the call's");
  tools.inFlight.add(payment.eventId);
  try {
    await tools.recorder.append([row]);
    if (tools.firsts && !(await isFirstIntent(tools.firsts, payment))) {
      // The intent of another observer was first in the log, and that observer pays. Our signed payment is not sent.
      tools.metrics.count("touchstone_observe_slots_lost_total");
      return { paid: false, counts: false, pass: false };
    }
    return await payAndWatch(tools, payment, asked, clock);
  } catch (error) {
    if (error instanceof NotRecorded) throw error;
    return await recordLost(tools, payment, clock, error);
  } finally {
    tools.inFlight.delete(payment.eventId);
  }
}

/**
 * @throws NotRecorded when the log cannot be read. Then no payment is sent, and the intent is recorded as our own fault
 * later
 */
async function isFirstIntent(
  firsts: NonNullable<Tools["firsts"]>,
  { cap, eventId, intent }: Payment,
): Promise<boolean> {
  try {
    return await firsts.isFirst(cap, eventId, intent.nonce);
  } catch (error) {
    throw new NotRecorded([eventId], error);
  }
}

/**
 * Records now, and not only at the next start, that the call failed through our own fault after its intent was written.
 */
async function recordLost(tools: Tools, payment: Payment, clock: Clock, error: unknown): Promise<PaidEnd> {
  tools.signal?.throwIfAborted();
  tools.logger.error({ err: error, intent: payment.eventId }, "a paid call could not be watched to its end");
  tools.metrics.count("touchstone_observe_paid_total", { fault: "ours" });
  await tools.recorder.append([createLostRow(payment, clock.now(), clean(`our own fault: ${String(error)}`, 2000))]);
  const open = { payment, chain: { seen: null, down: null }, delivered: false, excused: true };
  return { paid: true, counts: false, pass: false, open };
}
