import type { Clock } from "../../infra/clock.ts";
import type { Settlement } from "../../infra/rails/rails.ts";
import type { BodyOf } from "../record/bodies.ts";
import { plannedSlot } from "../record/ids.ts";
import type { OpenIntent } from "../record/memory.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import { type Call, HANDSHAKE_OF } from "./call.ts";
import { hashOf } from "./json.ts";
import type { ToolExchange } from "./mcp/session.ts";
import type { Probe } from "./probe/probe.ts";
import { type Draft, draft } from "./recorder.ts";

type McpSeen = ToolExchange["seen"];

/** A late fact's slot is the hash of its body, so a fact that is read twice has one id. */
const slotOf = (body: unknown): string => hashOf(body) ?? "";

/** Slot of every record of one planned call. */
const slotOfIntent = (intent: BodyOf<"paid.intent">): string => plannedSlot(intent.slot.block, intent.slot.minute);

/**
 * Time of a fact about a call: now, but never before the call was planned, since one host's simulated clock may be
 * ahead.
 */
export const factTime = (of: Pick<OpenIntent, "intent">, clock: Clock): Date =>
  new Date(Math.max(clock.now().getTime(), Date.parse(of.intent.planned_at)));

/** Does the Transfer on the chain match the quote: at most its amount, its payee, asset and network? */
export function asQuoted(intent: BodyOf<"paid.intent">, seen: Settlement): boolean {
  const { quote } = intent;
  return (
    seen.amountAtomic <= BigInt(quote.amount_atomic) &&
    seen.to.toLowerCase() === quote.pay_to.toLowerCase() &&
    seen.asset.toLowerCase() === quote.asset.toLowerCase() &&
    seen.network === quote.network
  );
}

/** The record of a planned probe, or of a paid call's first request when nothing was paid: `mcp.probe` for a tool. */
export function probeRow(
  cap: string,
  call: Pick<Call, "block" | "minute">,
  planned: keyof typeof HANDSHAKE_OF,
  { body, mcp }: Pick<Probe, "body" | "mcp">,
  at: Date,
): Draft {
  const { block, minute } = call;
  const of = { cap, slot: plannedSlot(block, minute), attempt: HANDSHAKE_OF[planned], at };
  const seen = { slot: { block, minute }, planned, ...body };
  return mcp
    ? draft({ ...of, type: "mcp.probe", body: { ...seen, ...mcp } })
    : draft({ ...of, type: "handshake", body: seen });
}

/** The record of how the MCP session began in which a tool was paid. Its slot is the intent's, so a copy has its id. */
export function mcpPaidRow(of: Pick<OpenIntent, "eventId" | "cap" | "intent">, seen: McpSeen, at: Date): Draft {
  const body = { of: of.eventId, ...seen };
  return draft({ type: "mcp.paid", cap: of.cap, slot: slotOfIntent(of.intent), attempt: of.intent.attempt, at, body });
}

/** A Transfer as read from the chain. */
export function settlementRow(of: Pick<OpenIntent, "eventId" | "cap" | "intent">, seen: Settlement, at: Date): Draft {
  const { intent } = of;
  const body: BodyOf<"settlement"> = {
    intent: of.eventId,
    tx: seen.tx,
    block_number: seen.blockNumber,
    block_time: seen.blockTime,
    from: seen.from,
    to: seen.to,
    ...(seen.sender === undefined ? {} : { sender: seen.sender }),
    amount_atomic: seen.amountAtomic.toString(),
    price: formatMoney(atomicToMicro(seen.amountAtomic, seen.decimals ?? 6) ?? 0n),
    asset: seen.asset,
    network: seen.network,
    nonce: intent.nonce,
    final: seen.final,
    as_quoted: asQuoted(intent, seen),
  };
  return draft({ type: "settlement", cap: of.cap, slot: slotOf(body), at, body });
}

/** A later fact about an intent. `n` tells apart repeated showings of one proof whose bodies are equal. */
export const followupRow = (cap: string, body: BodyOf<"paid.followup">, at: Date, n = 0): Draft =>
  draft({ type: "paid.followup", cap, slot: slotOf(body), attempt: n, at, body });

/** Who else pays the address at which an endpoint is paid. */
export const buyersRow = (cap: string, body: BodyOf<"payee.buyers">, at: Date): Draft =>
  draft({ type: "payee.buyers", cap, slot: slotOf(body), at, body });

/**
 * The result of a paid call whose end nobody watched: our process died, or could not evaluate the answer. It is always
 * our fault, and never evidence that the seller took the money (verification-method.md section 1). Its id is that of
 * the watched result, so the first of the two in the log is the only one that counts.
 */
export function lostRow(of: Pick<OpenIntent, "eventId" | "cap" | "intent">, at: Date, says: string): Draft {
  const { intent } = of;
  const body: BodyOf<"paid.result"> = {
    intent: of.eventId,
    watched: false,
    ended: "unknown",
    fault: "ours",
    live: true,
    honest: intent.first_leg.honest,
    wall: false,
    status: null,
    delivered: false,
    delivery: null,
    outcome: intent.input === "known_answer" ? 0 : null,
    schema_ok: null,
    latency_ms: null,
    checks: [],
    response_sha256: null,
    response_bytes: 0,
    differs: intent.first_leg.differs,
    control: null,
    says,
  };
  return draft({ type: "paid.result", cap: of.cap, slot: slotOfIntent(intent), attempt: intent.attempt, at, body });
}
