import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { AsOf, Blocks, Rail, Settlement, SignedPayment } from "../../../infra/rails/rails.ts";
import { SHOWN_AGAIN_MS } from "../../3-grade/params.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Call } from "../call.ts";
import { type ExchangeDeps, type Exchanged, endedByUs, exchange } from "../probe/exchange.ts";
import { stockOf } from "../probe/stock.ts";
import { type Evaluation, type Expectation, evaluate } from "../reading/checks.ts";
import { followupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { Prepared } from "./sign.ts";

/** One payment that was sent: everything needed to show its proof again and to evaluate the answer. */
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
 * Did we end the connection ourselves, or never send (refused without a reason: our own side)? Then nobody watched its
 * end.
 */
export const cutOff = (tools: Pick<Tools, "signal">, result: EgressResult): boolean =>
  result.outcome === "refused" ? result.reason === undefined : result.outcome !== "answered" && !!tools.signal?.aborted;

/** Sends the signed payment: the first time, and each time that its proof is shown again. */
export function send(means: ExchangeDeps, payment: Payment): Promise<Exchanged> {
  const { headerName: header, headerValue: value } = payment.signed;
  // A shutdown does not abort this: once money may move, either the end is watched or it is our fault.
  const how = {
    profile: "paid" as const,
    deadlineMs: payment.deadlineMs,
    payment: { header, value },
    stock: stockOf(payment.cap, payment.call),
  };
  return exchange(means, payment.prepared.request, how);
}

/**
 * Evaluates the answer in the reader's thread, which can be stopped. An answer that cannot be read is worth nothing. If
 * our own event loop stood still meanwhile, no latency is recorded.
 */
export async function evaluated(
  { reader }: Pick<ExchangeDeps, "reader">,
  { want }: Payment,
  { result, loop }: Exchanged,
  again = false,
): Promise<Evaluation> {
  const read = await reader.ask("evaluate", { result, want, again });
  const came = read.ok ? read.value : evaluate(result, want, null, again);
  return loop.stoodStill ? { ...came, latency_ms: null } : came;
}

/** Least `delivery` of an answer that counts as one (sql/tables/rules, is_passed). */
const WORTH = 0.5;

/** What one more showing of a proof tells about a retry. @param first sha256 of the first answer, or null */
export function retriedAs(
  { status, delivered, delivery, response_sha256 }: Omit<Evaluation, "wall">,
  first: string | null,
): NonNullable<BodyOf<"paid.followup">["retried"]> {
  if (delivered && (delivery ?? 0) >= WORTH) {
    return { outcome: "answered", status, same_bytes: first === null ? null : response_sha256 === first };
  }
  const refused = status !== null && status >= 400 && status < 500;
  return { outcome: status === 402 ? "asked_again" : refused ? "refused" : "failed", status, same_bytes: null };
}

/** Shows a proof once more. `watched` is false when its end was not seen; then it tells nothing about the seller. */
export async function showOnce(tools: Tools, payment: Payment, clock: Clock) {
  const exchanged = await send(tools, payment);
  const { wall, ...came } = await evaluated(tools, payment, exchanged, true);
  const control = came.delivered ? null : await tools.control.call(clock);
  const watched = control?.ok !== false && !cutOff(tools, exchanged.result) && !endedByUs(exchanged);
  return { came, wall, control, watched };
}

/** What re-tests are decided by. */
export type Shown = Pick<Evaluation, "delivered" | "delivery" | "outcome">;

/** Waits before each showing, ms of the record's time. */
const WAITS_MS = [5_000, 60_000, 240_000];

/**
 * For a payment whose money left and for which no answer came: shows the proof (the same signed bytes) again, up to
 * three times within ten minutes, until an answer comes. Its nonce moves money only once, so it cannot settle twice. An
 * honest seller whose answer was lost gives it now. Each showing is recorded.
 */
export async function showAgain(tools: Tools, payment: Payment, clock: Clock): Promise<Shown> {
  const began = clock.now().getTime();
  let last: Shown = { delivered: false, delivery: null, outcome: payment.want.known ? 0 : null };
  for (let n = 0; n < WAITS_MS.length; n++) {
    await clock.sleep(WAITS_MS[n]!, tools.signal);
    if (clock.now().getTime() - began >= SHOWN_AGAIN_MS) break;
    const { came, wall, control, watched } = await showOnce(tools, payment, clock);
    const body: BodyOf<"paid.followup"> = {
      of: payment.eventId,
      kind: "shown_again",
      shown_again: { ...came, watched },
      ...(watched ? { retried: retriedAs(came, null) } : {}),
      ...(control ? { control } : {}),
      ...(wall ? { wall } : {}),
    };
    await tools.recorder.append([followupRow(payment.cap, body, clock.now(), n)]);
    tools.metrics.count("touchstone_observe_shown_again_total", { delivered: `${came.delivered}` });
    last = came;
    if (came.delivered) break;
  }
  return last;
}

/**
 * What the chain holds of a payment. `down`: why it could not be asked; then it is not known whether the payment
 * settled.
 */
export interface ChainView {
  seen: Settlement | null;
  down: string | null;
  /** As of which blocks the chain was asked; absent where it was not. */
  asOf?: Blocks;
  /** Why the seller could not have settled the payment, through our own fault. */
  unable?: string;
}

type Authorization = Pick<BodyOf<"paid.intent">, "wallet" | "nonce" | "since_block" | "quote">;

/** The Transfer of a settlement record. */
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

/** Asks the chain once for the Transfer of one authorization. */
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
 * Asks the chain for the Transfer, again after each pause (real ms: a chain's time is never simulated), until it is
 * there. The seller's own receipt is not read. reconcile.ts finds what settles later.
 */
export async function pollSettlement(
  rail: Pick<Rail, "settlementOf">,
  intent: Authorization,
  pausesMs: readonly number[],
): Promise<ChainView> {
  let said = await lookUp(rail, intent);
  for (const pause of pausesMs) {
    if (said.seen) break;
    await systemClock.sleep(pause);
    said = await lookUp(rail, intent);
  }
  return said;
}

/**
 * For a payment without answer and without settlement: finds whether that is our fault. A known wallet pays several
 * calls at once and may have run dry since its balance was read. A blind wallet pays one payee alone, who could empty
 * it by settling late, so its balance excuses nobody. And the chain's time may be before the one from which our
 * signature is valid.
 */
export async function withMeans(rail: Rail, { call, intent, signed }: Payment, said: ChainView): Promise<ChainView> {
  if (said.seen || !said.asOf) return said;
  const { time } = said.asOf.head;
  if (time < signed.validAfter)
    return { ...said, unable: `our clock is ahead: the chain is at ${time}, valid after ${signed.validAfter}` };
  if (call.blind) return said;
  let held: AsOf<bigint>;
  try {
    const { network, asset } = intent.quote;
    held = await rail.balance(signed.from, { network, asset });
  } catch (error) {
    return { seen: null, down: (error as Error).message ?? String(error) };
  }
  if (held.value >= signed.amountAtomic) return said;
  // A balance below the price may be what is left after this payment settled; the node that was asked for the Transfer
  // may be behind the one that was asked for the balance.
  const again = await lookUp(rail, intent);
  if (again.seen || !again.asOf) return again;
  if (again.asOf.head.number < held.head.number)
    return { seen: null, down: `one node is at block ${held.head.number}, another at ${again.asOf.head.number}` };
  return { ...again, unable: "our wallet holds less than the price" };
}
