import { createHmac } from "node:crypto";
import { plannedSlot, recordId } from "../record/ids.ts";

/** One planned call of one endpoint. */
export interface Call {
  /** A free probe, or a paid call. */
  kind: "probe" | "paid";
  /** Number of the block (six hours UTC) in which the call is planned: floor(unix seconds / 21600). */
  block: number;
  /** Minute of the block, 0 to 359. */
  minute: number;
  plannedAt: Date;
  /** Is the call paid from a wallet that the seller does not know as ours? */
  blind: boolean;
  /** Weight of the sample that the call gives, fixed before the call is made. */
  w: number;
  /** Is this an additional paid call after a failed one? */
  retest: boolean;
}

/**
 * Attempt numbers in the event id of a handshake (an exchange without payment). They distinguish free, paid and asked
 * calls of one endpoint in one block and minute.
 */
export const HANDSHAKE_ATTEMPTS = { free: 0, paid: 1, asked: 2 } as const;

type ProbeType = "handshake" | "mcp.probe";

/**
 * Returns the event id of a call's probe record: the record of a free probe, or of a paid call's first request when
 * nothing was paid.
 */
export const handshakeId = (
  cap: string,
  call: Pick<Call, "block" | "minute">,
  callKind: "free" | "paid",
  type: ProbeType = "handshake",
): string => recordId(type, cap, plannedSlot(call.block, call.minute), HANDSHAKE_ATTEMPTS[callKind]);

/**
 * Returns the event ids of both types of probe record. Only one of them can be in the record, since an endpoint either
 * is an MCP tool or is not.
 */
const probeIds = (cap: string, call: Pick<Call, "block" | "minute">, callKind: "free" | "paid"): string[] => [
  handshakeId(cap, call, callKind),
  handshakeId(cap, call, callKind, "mcp.probe"),
];

/** Returns the event id of a paid call's intent, the record that is written before the payment. */
export const intentId = (cap: string, call: Pick<Call, "block" | "minute">): string =>
  recordId("paid.intent", cap, plannedSlot(call.block, call.minute));

/** Returns all event ids that a call may have in the record, depending on how it ends. */
export const eventIdsOf = (cap: string, call: Pick<Call, "kind" | "block" | "minute">): string[] =>
  call.kind === "probe" ? probeIds(cap, call, "free") : [intentId(cap, call), ...probeIds(cap, call, "paid")];

/**
 * Does `doneIds` have one of the call's event ids? A paid call writes an intent (the record before a payment), or a
 * handshake when nothing was paid.
 */
export function isDone(
  doneIds: ReadonlySet<string>,
  cap: string,
  call: Pick<Call, "kind" | "block" | "minute">,
): boolean {
  return eventIdsOf(cap, call).some((id) => doneIds.has(id));
}

/** Computes the seed of a call's question with a known answer. Without the secret nobody can predict the question. */
export const seedOf = (secret: Uint8Array, cap: string, call: Pick<Call, "block" | "minute">): Buffer =>
  createHmac("sha256", secret)
    .update(`known answer ${cap} ${plannedSlot(call.block, call.minute)}`)
    .digest();
