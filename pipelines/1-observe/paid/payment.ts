import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { AsOf, Blocks, Rail, Settlement, SignedPayment } from "../../../infra/rails/rails.ts";
import { SHOWN_AGAIN_MS } from "../../3-grade/params.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Call } from "../call.ts";
import { type Exchanged, endedByUs, exchange, type Means } from "../probe/exchange.ts";
import { stockOf } from "../probe/stock.ts";
import { type Evaluation, type Expectation, evaluate } from "../reading/checks.ts";
import { followupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { Prepared } from "./sign.ts";

/** One payment that left: everything needed to show the same proof again, and to evaluate what then comes. */
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

/** Did we hang up ourselves, or never send (refused without a reason is our own side)? Then nobody watched the end. */
export const cutOff = (tools: Pick<Tools, "signal">, result: EgressResult): boolean =>
  result.outcome === "refused" ? result.reason === undefined : result.outcome !== "answered" && !!tools.signal?.aborted;

/** Sends the signed payment: the first time, and each time the same proof is shown again. */
export function send(means: Means, payment: Payment): Promise<Exchanged> {
  const { headerName: header, headerValue: value } = payment.signed;
  // No signal of a shutdown here: once the money may move, the end is watched, or it is our fault.
  const how = {
    profile: "paid" as const,
    deadlineMs: payment.deadlineMs,
    payment: { header, value },
    stock: stockOf(payment.cap, payment.call),
  };
  return exchange(means, payment.prepared.request, how);
}

/**
 * Evaluates what came, where the reading can be stopped. An answer that cannot be read is one that is worth nothing. A
 * time in which our own loop stood still is none.
 */
export async function evaluated(
  { reader }: Pick<Means, "reader">,
  { want }: Payment,
  { result, loop }: Exchanged,
  again = false,
): Promise<Evaluation> {
  const read = await reader.ask("evaluate", { result, want, again });
  const came = read.ok ? read.value : evaluate(result, want, null, again);
  return loop.stoodStill ? { ...came, latency_ms: null } : came;
}

/** An answer of less worth than this is none (sql/tables/rules, is_passed). */
const WORTH = 0.5;

/** What showing a proof once more says of a retry. @param first sha256 of what the first try brought */
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

/** One showing of the same proof: what came, and whether its end was watched. One that was not says nothing of the seller. */
export async function showOnce(tools: Tools, payment: Payment, clock: Clock) {
  const exchanged = await send(tools, payment);
  const { wall, ...came } = await evaluated(tools, payment, exchanged, true);
  const control = came.delivered ? null : await tools.control.call(clock);
  const watched = control?.ok !== false && !cutOff(tools, exchanged.result) && !endedByUs(exchanged);
  return { came, wall, control, watched };
}

/** What the retests look at. */
export type Shown = Pick<Evaluation, "delivered" | "delivery" | "outcome">;

/** Waits before each showing, ms of the record's time. */
const WAITS_MS = [5_000, 60_000, 240_000];

/**
 * The money went and nothing came: the same signed bytes are shown again, a few times within ten minutes. It is the
 * same payment (same nonce), so it cannot settle twice; an honest seller whose answer was lost gives it now. Each
 * showing is a record of its own. Stops at the first that brings anything.
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

/** What the chain shows of a payment. `down`: why it could not be asked; then nothing is known, neither way. */
export interface ChainView {
  seen: Settlement | null;
  down: string | null;
  /** As of which blocks it was asked; absent where it was not. */
  asOf?: Blocks;
  /** Why nobody could have settled what we signed, by our own doing. */
  unable?: string;
}

type Authorization = Pick<BodyOf<"paid.intent">, "wallet" | "nonce" | "since_block" | "quote">;

/** A Transfer as the record has it. */
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
 * Asks the chain, again after each pause (real ms: a chain's time is never simulated), until the Transfer is there. A seller's
 * word on its own settlement is never read. What comes later is found by reconcile.ts.
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
 * Nothing came and nothing settled: was it us? A known wallet pays several at once and may have run dry since it was
 * looked at; a blind one has one payee alone, who could empty it by settling late, so what it holds afterwards excuses
 * nobody. And the chain's time may lie before the moment from which our signature is valid.
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
  // Less than the price may be what is left once it was paid, which a node that lags behind the one with the balance
  // does not know.
  const again = await lookUp(rail, intent);
  if (again.seen || !again.asOf) return again;
  if (again.asOf.head.number < held.head.number)
    return { seen: null, down: `one node is at block ${held.head.number}, another at ${again.asOf.head.number}` };
  return { ...again, unable: "our wallet holds less than the price" };
}
