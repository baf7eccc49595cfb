import { createHmac } from "node:crypto";
import { plannedSlot, recordId } from "../record/ids.ts";

/** One planned call of one endpoint. */
export interface Call {
  /** As the day's plan (a private object) has it: a free probe, or a paid call. */
  kind: "probe" | "paid";
  block: number;
  minute: number;
  plannedAt: Date;
  blind: boolean;
  /** Weight, fixed before the outcome. */
  w: number;
  retest: boolean;
}

/** Attempt numbers in the id of a handshake: a cap's probe and its paid call share block and minute. */
export const HANDSHAKE_OF = { free: 0, paid: 1, asked: 2 } as const;

type ProbeType = "handshake" | "mcp.probe";

export const handshakeId = (
  cap: string,
  call: Pick<Call, "block" | "minute">,
  planned: "free" | "paid",
  type: ProbeType = "handshake",
): string => recordId(type, cap, plannedSlot(call.block, call.minute), HANDSHAKE_OF[planned]);

/** Ids of both types of probe: a capability is a tool's or it is not, so only one of the two can ever be written. */
const probeIds = (cap: string, call: Pick<Call, "block" | "minute">, planned: "free" | "paid"): string[] => [
  handshakeId(cap, call, planned),
  handshakeId(cap, call, planned, "mcp.probe"),
];

export const intentId = (cap: string, call: Pick<Call, "block" | "minute">): string =>
  recordId("paid.intent", cap, plannedSlot(call.block, call.minute));

/** Ids that a call may leave, whichever way it ends. */
export const idsOf = (cap: string, call: Pick<Call, "kind" | "block" | "minute">): string[] =>
  call.kind === "probe" ? probeIds(cap, call, "free") : [intentId(cap, call), ...probeIds(cap, call, "paid")];

/** Was this call made, as far as these event ids tell? A paid call leaves an intent, or a handshake in its stead. */
export function isDone(done: ReadonlySet<string>, cap: string, call: Pick<Call, "kind" | "block" | "minute">): boolean {
  return idsOf(cap, call).some((id) => done.has(id));
}

/** Seed of a known answer: nobody without the secret can tell the question of a call before it comes. */
export const seedOf = (secret: Uint8Array, cap: string, call: Pick<Call, "block" | "minute">): Buffer =>
  createHmac("sha256", secret)
    .update(`known answer ${cap} ${plannedSlot(call.block, call.minute)}`)
    .digest();
