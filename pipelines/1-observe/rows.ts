import type { Clock } from "../../infra/clock.ts";
import type { Settlement } from "../../infra/rails/rails.ts";
import type { BodyOf } from "../record/bodies.ts";
import { plannedSlot } from "../record/ids.ts";
import type { OpenIntent } from "../record/memory.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import { type Call, HANDSHAKE_ATTEMPTS } from "./call.ts";
import { hashOf } from "./json.ts";
import type { ToolExchange } from "./mcp/session.ts";
import type { Probe } from "./probe/probe.ts";
import { createDraft, type Draft } from "./recorder.ts";

type McpExchange = ToolExchange["recordMembers"];

/**
 * Returns the slot (the part of a record id that separates records of one endpoint and type) of a fact that is
 * learned after the call: the hash of its body, so that a fact that is read twice gets one record id.
 */
const slotOfBody = (body: unknown): string => hashOf(body) ?? "";

/** Returns the slot of all records of one planned call: its block (six hours UTC) and minute. */
const slotOfIntent = (intent: BodyOf<"paid.intent">): string => plannedSlot(intent.slot.block, intent.slot.minute);

/**
 * Returns the time of a fact about a call: now, but never before the call's planned time, since the simulated clock of
 * a host may be ahead of the observer's clock.
 */
export const factTime = (intentRecord: Pick<OpenIntent, "intent">, clock: Clock): Date =>
  new Date(Math.max(clock.now().getTime(), Date.parse(intentRecord.intent.planned_at)));

/**
 * Does the Transfer (the payment on the chain) match the quote (the offer for which the payment was signed): at most
 * its amount, its payee, asset and network?
 */
export function matchesQuote(intent: BodyOf<"paid.intent">, settlement: Settlement): boolean {
  const { quote } = intent;
  return (
    settlement.amountAtomic <= BigInt(quote.amount_atomic) &&
    settlement.to.toLowerCase() === quote.pay_to.toLowerCase() &&
    settlement.asset.toLowerCase() === quote.asset.toLowerCase() &&
    settlement.network === quote.network
  );
}

/**
 * Makes the record of a probe, or of a paid call's first request when nothing was paid; its type is `mcp.probe` for a
 * tool.
 */
export function createProbeRow(
  cap: string,
  call: Pick<Call, "block" | "minute">,
  planned: keyof typeof HANDSHAKE_ATTEMPTS,
  { body, mcp }: Pick<Probe, "body" | "mcp">,
  at: Date,
): Draft {
  const { block, minute } = call;
  const draftMembers = { cap, slot: plannedSlot(block, minute), attempt: HANDSHAKE_ATTEMPTS[planned], at };
  const handshake = { slot: { block, minute }, planned, ...body };
  return mcp
    ? createDraft({ ...draftMembers, type: "mcp.probe", body: { ...handshake, ...mcp } })
    : createDraft({ ...draftMembers, type: "handshake", body: handshake });
}

/**
 * Makes the record of how the MCP session of a paid tool call began. Its slot is the intent's slot, so that a copy gets
 * an equal id.
 */
export function createMcpPaidRow(
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">,
  exchange: McpExchange,
  at: Date,
): Draft {
  const body = { of: intentRecord.eventId, ...exchange };
  return createDraft({
    type: "mcp.paid",
    cap: intentRecord.cap,
    slot: slotOfIntent(intentRecord.intent),
    attempt: intentRecord.intent.attempt,
    at,
    body,
  });
}

/** Makes the record of a Transfer that was read from the chain. */
export function createSettlementRow(
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">,
  settlement: Settlement,
  at: Date,
): Draft {
  const { intent } = intentRecord;
  const body: BodyOf<"settlement"> = {
    intent: intentRecord.eventId,
    tx: settlement.tx,
    block_number: settlement.blockNumber,
    block_time: settlement.blockTime,
    from: settlement.from,
    to: settlement.to,
    ...(settlement.sender === undefined ? {} : { sender: settlement.sender }),
    amount_atomic: settlement.amountAtomic.toString(),
    price: formatMoney(atomicToMicro(settlement.amountAtomic, settlement.decimals ?? 6) ?? 0n),
    asset: settlement.asset,
    network: settlement.network,
    nonce: intent.nonce,
    final: settlement.final,
    as_quoted: matchesQuote(intent, settlement),
  };
  return createDraft({ type: "settlement", cap: intentRecord.cap, slot: slotOfBody(body), at, body });
}

/**
 * Makes the record of a later fact about an intent. `n` distinguishes repeated requests with one proof if their records
 * have equal bodies.
 */
export const createFollowupRow = (cap: string, body: BodyOf<"paid.followup">, at: Date, n = 0): Draft =>
  createDraft({ type: "paid.followup", cap, slot: slotOfBody(body), attempt: n, at, body });

/** Makes the record of who else pays the payee address of an endpoint. */
export const createBuyersRow = (cap: string, body: BodyOf<"payee.buyers">, at: Date): Draft =>
  createDraft({ type: "payee.buyers", cap, slot: slotOfBody(body), at, body });

/**
 * Makes the result of a paid call that this service did not watch to its end, because our process died or could not
 * evaluate the answer. It is always our own fault and never evidence that the seller took the money
 * (verification-method.md section 1). It has the id that a watched result would have, so only the first of the two in
 * the log counts.
 */
export function createLostRow(
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">,
  at: Date,
  says: string,
): Draft {
  const { intent } = intentRecord;
  const body: BodyOf<"paid.result"> = {
    intent: intentRecord.eventId,
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
  return createDraft({
    type: "paid.result",
    cap: intentRecord.cap,
    slot: slotOfIntent(intent),
    attempt: intent.attempt,
    at,
    body,
  });
}
