import { createHmac } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Checker } from "../record/classes/checker.ts";
import { checkerOf, classOf } from "../record/classes/index.ts";
import { plannedSlot, recordId } from "../record/ids.ts";
import type { ListedCap } from "../record/memory.ts";
import type { BoundedMap } from "./bounded.ts";
import type { Control } from "./control.ts";
import type { Declared } from "./declared.ts";
import type { FirstIntents } from "./first-intents.ts";
import type { Hosts } from "./hosts.ts";
import { type ChosenInput, chooseInput, makeRequest, type Request } from "./input.ts";
import type { Intake } from "./listings.ts";
import { makeToolRequest } from "./mcp/tool.ts";
import type { Recorder } from "./recorder.ts";
import type { Schemas } from "./schema.ts";
import type { Ledger } from "./spend.ts";

/** What every call works with. */
export interface Tools {
  egress: Egress;
  rail: Rail;
  wallets: Wallets;
  control: Control;
  recorder: Recorder;
  intake: Intake;
  ledger: Ledger;
  /** Hosts that are this observer's to call. */
  hosts: Hosts;
  /** Where several observers share the work: whose intent was first. Null: there is nobody else. */
  firsts: Pick<FirstIntents, "won"> | null;
  schemas: Schemas;
  /** Key of the known answers: whoever has it knows our questions beforehand. */
  secret: Uint8Array;
  /** Pauses (real ms) between looks at the chain after a paid call; the sweep sees what comes later. */
  settlePollMs: readonly number[];
  /** Intents whose call is under way in this process. */
  inFlight: Set<string>;
  /** `cap sha256` of requests that passed: such an input is no bad one when it fails later. */
  passed: BoundedMap<string, true>;
  logger: Logger;
  metrics: Metrics;
  signal?: AbortSignal | undefined;
}

/** One planned call of one endpoint. */
export interface Call {
  kind: "knock" | "paid";
  block: number;
  minute: number;
  plannedAt: Date;
  blind: boolean;
  /** Weight, fixed before the outcome. */
  w: number;
  retest: boolean;
}

/** Attempt numbers in the id of a handshake: a cap's knock and its paid call share block and minute. */
export const HANDSHAKE_OF = { free: 0, paid: 1, asked: 2 } as const;

type KnockType = "handshake" | "mcp.probe";

export const handshakeId = (
  cap: string,
  call: Pick<Call, "block" | "minute">,
  planned: "free" | "paid",
  type: KnockType = "handshake",
): string => recordId(type, cap, plannedSlot(call.block, call.minute), HANDSHAKE_OF[planned]);

/** A capability is a tool's or it is not, so only one of the two can ever be there. */
const knockIds = (cap: string, call: Pick<Call, "block" | "minute">, planned: "free" | "paid"): string[] => [
  handshakeId(cap, call, planned),
  handshakeId(cap, call, planned, "mcp.probe"),
];

export const intentId = (cap: string, call: Pick<Call, "block" | "minute">): string =>
  recordId("paid.intent", cap, plannedSlot(call.block, call.minute));

/** Ids that a call may leave, whichever way it ends. */
export const idsOf = (cap: string, call: Pick<Call, "kind" | "block" | "minute">): string[] =>
  call.kind === "knock" ? knockIds(cap, call, "free") : [intentId(cap, call), ...knockIds(cap, call, "paid")];

/** Was this call made, as far as these event ids tell? A paid call leaves an intent, or a handshake in its stead. */
export function isDone(done: ReadonlySet<string>, cap: string, call: Pick<Call, "kind" | "block" | "minute">): boolean {
  return idsOf(cap, call).some((id) => done.has(id));
}

const hasBody = (method: string): boolean => method !== "GET" && method !== "DELETE";

/** What the seller says of its endpoint: its own listing first, then its 402. A catalogue's words are not its own. */
export interface SellerSays {
  checker: Checker;
  schema: unknown;
  mime: string | null;
}

export function sellerSays(one: ListedCap, declared: Declared | null): SellerSays {
  const own = one.sellerClaims;
  const named = own && own.class !== "any" ? own.class : classOf({ named: declared?.named, example: null });
  return {
    checker: checkerOf(named),
    schema: own?.output_schema ?? declared?.outputSchema,
    mime: own?.output_mime ?? declared?.mime ?? null,
  };
}

/** Seed of a known answer: nobody without the secret can tell the question of a call before it comes. */
export const seedOf = (secret: Uint8Array, cap: string, call: Pick<Call, "block" | "minute">): Buffer =>
  createHmac("sha256", secret)
    .update(`known answer ${cap} ${plannedSlot(call.block, call.minute)}`)
    .digest();

/** The request of a call, from what is known before (listing) and, once there is one, from the 402. */
export function requestOf(
  one: ListedCap,
  declared: Declared | null,
  seed: Uint8Array | null,
): { input: ChosenInput; request: Request } {
  const says = sellerSays(one, declared);
  const own = [
    ...(one.sellerClaims ? [one.sellerClaims] : []),
    ...(declared ? [{ example: declared.example, input_schema: declared.inputSchema }] : []),
  ];
  const method = one.method as Request["method"];
  const inBody = one.tool !== null || hasBody(method);
  const input = chooseInput({ own, others: [one.claims] }, inBody, says.checker, seed);
  if (one.tool !== null) return { input, request: makeToolRequest(one.url, one.tool, input) };
  return { input, request: makeRequest(one.url, method, input.example, seed === null ? null : says.mime) };
}

/** Waits until `t` on this clock; returns at once when it has passed. */
export const sleepUntil = async (clock: Clock, t: Date, signal?: AbortSignal): Promise<void> => {
  const wait = t.getTime() - clock.now().getTime();
  if (wait > 0) await clock.sleep(wait, signal);
};
