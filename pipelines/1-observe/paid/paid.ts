import { type Clock, systemClock } from "../../../infra/clock.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import { plannedSlot } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import { type Call, intentId, seedOf } from "../call.ts";
import type { ClassQuestion } from "../classes/asking.ts";
import { clean } from "../json.ts";
import { passes } from "../plan/steps.ts";
import { excused, isMethodAssumed } from "../probe/methods.ts";
import { probe } from "../probe/probe.ts";
import { requestOf, sellerSays } from "../probe/request.ts";
import { stockOf } from "../probe/stock.ts";
import { PAID } from "../queue.ts";
import { draft, NotRecorded, Recorder } from "../recorder.ts";
import { lostRow, mcpPaidRow, probeRow, settlementRow } from "../rows.ts";
import { signedReceipt } from "../terms/signed.ts";
import type { Tools } from "../tools.ts";
import {
  type ChainView,
  evaluated,
  type Payment,
  pollSettlement,
  type Shown,
  send,
  showAgain,
  withMeans,
} from "./payment.ts";
import { resultBody } from "./result.ts";
import { measureRetry } from "./retry.ts";
import { type Prepared, sign } from "./sign.ts";

/** How a planned paid call ended; re-tests are decided by it. */
export interface PaidEnd {
  /** False when nothing was signed: there was no 402 to pay, or we could not pay it. */
  paid: boolean;
  /** Does the row count as a sample, and does it pass? Both false when nothing was paid. */
  counts: boolean;
  pass: boolean;
  /** What the reconciler takes over: the payment and what the chain held of it. Absent when nothing was signed. */
  open?: { payment: Payment; chain: ChainView; delivered: boolean; excused: boolean };
}

/** Pays a call whose intent is durable: sends the payment, evaluates the answer, asks the chain, records the result. */
async function payAndWatch(tools: Tools, payment: Payment, asked: ClassQuestion, clock: Clock): Promise<PaidEnd> {
  const sent = systemClock.monotonic();
  const exchanged = await send(tools, payment);
  tools.metrics.time("touchstone_observe_paid_call_seconds", (systemClock.monotonic() - sent) / 1000);
  const endedTime = Math.floor(systemClock.now().getTime() / 1000);
  const evaluation = await evaluated(tools, payment, exchanged);
  const polled = await pollSettlement(tools.rail, payment.intent, tools.settlePollMs);
  const chain = evaluation.delivered ? polled : await withMeans(tools.rail, payment, polled);
  const failed = !evaluation.delivered || evaluation.delivery === 0;
  const control = failed ? await tools.control.call(clock) : null;
  const receipt = await signedReceipt(exchanged.result.headers, payment.intent);
  const result = resultBody(tools, payment, exchanged, evaluation, chain, control);
  const body = {
    ...result,
    ...(receipt ? { signed_receipt: receipt } : {}),
    ...(exchanged.result.outcome === "answered" ? { answered_time: endedTime } : {}),
  };
  const slot = plannedSlot(payment.call.block, payment.call.minute);
  const rows = [draft({ type: "paid.result", cap: payment.cap, slot, at: clock.now(), body })];
  // One append, so that a result never stands without the settlement that was seen with it.
  if (chain.seen) rows.push(settlementRow(payment, chain.seen, clock.now()));
  if (exchanged.mcp) rows.push(mcpPaidRow(payment, exchanged.mcp.seen, clock.now()));
  await tools.recorder.append(rows);
  tools.metrics.count("touchstone_observe_paid_total", { fault: body.fault ?? "none" });
  if (chain.seen) tools.metrics.count("touchstone_observe_paid_micro_total", {}, Number(chain.seen.amountAtomic));
  logPayment(tools, payment, chain, body);
  tools.asking.ended(payment, asked, passes(evaluation));
  const excused = body.fault === "ours";
  let shown: Shown = evaluation;
  if (chain.seen && !evaluation.delivered && !excused) shown = await showAgain(tools, payment, clock);
  else if (!excused) await measureRetry(tools, payment, { chain, evaluation }, clock);
  const counts = body.fault === null || body.fault === "blocked";
  if (passes(shown)) tools.passed.set(`${payment.cap} ${payment.intent.request_sha256}`, true);
  return {
    paid: true,
    counts,
    pass: passes(shown),
    open: { payment, chain, delivered: shown.delivered, excused },
  };
}

/** Logs one line for a payment: the amount that left, or the promised amount while no Transfer was seen. */
function logPayment(
  { logger }: Tools,
  { cap, call, eventId, intent }: Payment,
  { seen }: ChainView,
  { fault, delivery }: { fault: string | null; delivery: number | null },
): void {
  const { network, amount_atomic: promised } = intent.quote;
  const told = { cap, intent: eventId, kind: call.blind ? "blind" : "known", network };
  const sum = seen ? { paid_atomic: seen.amountAtomic.toString(), tx: seen.tx } : { promised_atomic: promised };
  logger.info(
    { ...told, ...sum, fault, delivery },
    seen ? "a call was paid" : "a call was made; no payment was seen yet",
  );
}

/** Records the first request of a call that was not paid, as a handshake of the paid plan. */
async function recordUnpaid(
  tools: Tools,
  one: ListedCap,
  call: Call,
  prepared: Prepared,
  at: Date,
  says?: string,
): Promise<PaidEnd> {
  const { body, ...seen } = prepared.probe;
  // What was seen of the seller stays in the record, good or bad: that we did not pay excuses nothing of it.
  const said = { ...body, ...(says === undefined ? {} : { says: clean(says, 2000) }) };
  await tools.recorder.append([probeRow(one.cap, call, "paid", { ...seen, body: said }, at)]);
  return { paid: false, counts: false, pass: false };
}

/**
 * Makes one planned paid call: first request, signature, durable intent, payment, evaluation, settlement; and when the
 * money left and no answer came, shows the proof again. The intent's id is that of the call, known beforehand.
 * @throws NotRecorded when the log does not take a record. If that was the intent, no payment left. If it was a later
 * record, the intent stays open and is booked as our fault at the next start: theft is never claimed from memory.
 */
export async function makePaidCall(all: Tools, listed: ListedCap, call: Call, clock: Clock): Promise<PaidEnd> {
  const source = stockOf(listed.cap, call);
  const tools = source === undefined ? all : { ...all, control: all.controlFrom(source) };
  let one = tools.intake.current(listed);
  const seed = seedOf(tools.secret, one.cap, call);
  const at = clock.now();
  let asked = await tools.asking.ask(one, null, seed);
  const before = requestOf(one, null, asked);
  const stock = stockOf(one.cap, call);
  const egress = withRequestFields(tools.egress, { pool: PAID, ...(stock === undefined ? {} : { stock }) });
  const relist = async () => {
    // Between the two requests of a blind call the listing too is fetched as the blind wallet's client, not as ours.
    one = await tools.intake.reread(one, clock, egress);
    return one.sellerClaims;
  };
  const first = { ...tools, egress, stock };
  const prepared: Prepared = { ...before, probe: await probe(first, before.request, one.sellerClaims, clock, relist) };
  const read = prepared.probe.read;
  const { state } = prepared.probe.body;
  if (isMethodAssumed(one) && (state === "status" || state === "free")) {
    // Its free probe looks for the method.
    prepared.probe = excused(prepared.probe, "no listing names a method, and GET met no 402");
  }
  if (!read?.payable || prepared.probe.body.state !== "asked") return recordUnpaid(tools, one, call, prepared, at);
  // The 402 may be the first to declare how the endpoint is called.
  if (before.input.kind === "synthetic") {
    asked = await tools.asking.ask(one, read.declared, seed);
    Object.assign(prepared, requestOf(one, read.declared, asked));
  }
  await tools.asking.tell(one, asked, clock);
  const ready = await sign(tools, one, call, { ...prepared, asked }, clock);
  if (!ready.ok) return recordUnpaid(tools, one, call, prepared, at, ready.says);
  const says = sellerSays(one, read.declared);
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
    if (tools.firsts && !(await wonSlot(tools.firsts, payment))) {
      // Another observer's intent was first, and that observer pays. Our signed payment is not sent.
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
 * @throws NotRecorded when the log cannot be read: then no payment is sent, and the intent is booked as our fault later
 */
async function wonSlot(firsts: NonNullable<Tools["firsts"]>, { cap, eventId, intent }: Payment): Promise<boolean> {
  try {
    return await firsts.won(cap, eventId, intent.nonce);
  } catch (error) {
    throw new NotRecorded([eventId], error);
  }
}

/** Records a fault of our own after the intent now, instead of at the next start. */
async function recordLost(tools: Tools, payment: Payment, clock: Clock, error: unknown): Promise<PaidEnd> {
  tools.signal?.throwIfAborted();
  tools.logger.error({ err: error, intent: payment.eventId }, "a paid call could not be watched to its end");
  tools.metrics.count("touchstone_observe_paid_total", { fault: "ours" });
  await tools.recorder.append([lostRow(payment, clock.now(), clean(`our own fault: ${String(error)}`, 2000))]);
  const open = { payment, chain: { seen: null, down: null }, delivered: false, excused: true };
  return { paid: true, counts: false, pass: false, open };
}
