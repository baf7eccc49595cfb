import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { PayableEntry, Rail } from "../../infra/rails/rails.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import type { Control, ControlSeen } from "./control.ts";
import { mergeDeclared, NOTHING } from "./declared.ts";
import { defectsSeen } from "./defects.ts";
import { type Exchanged, exchange } from "./exchange.ts";
import { differences } from "./honesty.ts";
import type { Request } from "./input.ts";
import { clean, keepable, type Named } from "./json.ts";
import type { ToolExchange } from "./mcp/call-tool.ts";
import { type ReadTerms, readTerms } from "./terms.ts";
import { isWall } from "./wall.ts";
import type { Answer402 } from "./x402.ts";

type Handshake = Named<BodyOf<"handshake">>;

/** A handshake that takes longer is not live (grading-method.md section 1). */
export const LIVE_MS = 10_000;

/** What a knock saw. `read` is kept for the payment that may follow; the rest is the record's. */
export interface Knock {
  body: Omit<Handshake, "slot" | "planned">;
  read: ReadTerms | null;
  /** Only of a tool: what `mcp.probe` has beside a handshake. */
  mcp?: ToolExchange["seen"];
}

export interface KnockTools {
  egress: Egress;
  rail: Pick<Rail, "canPay" | "network">;
  control: Control;
  signal?: AbortSignal | undefined;
}

async function ask(tools: KnockTools, request: Request): Promise<Exchanged> {
  const send = () => exchange(tools.egress, request, { profile: "handshake", signal: tools.signal });
  const first = await send();
  tools.signal?.throwIfAborted();
  // One lost packet must not read as an outage: a transport error is retried once, anything else is an answer.
  return first.result.outcome === "transport" ? send() : first;
}

interface Judged {
  state: Handshake["state"];
  live: boolean;
  wall: boolean;
  read: ReadTerms | null;
  says?: string;
}

/** Of a tool's terms: the resource is named `mcp://tool/..` there, and mpp's challenges are data, not paid. */
function readToolTerms(mcp: ToolExchange, answer: Answer402, rail: KnockTools["rail"]): ReadTerms {
  const canPay = (entry: PayableEntry) => mcp.payable && !entry.challenge && rail.canPay(entry);
  const read = readTerms(answer, { network: rail.network, canPay });
  const inputSchema = keepable(mcp.listed?.inputSchema);
  const outputSchema = keepable(mcp.listed?.outputSchema);
  const listed = { ...NOTHING, inputSchema, inputIn: "body" as const, outputSchema };
  return { ...read, declared: mergeDeclared(read.declared, listed) };
}

function judge({ result, mcp }: Exchanged, request: Request, rail: KnockTools["rail"]): Judged {
  const nothing = { live: false, wall: false, read: null };
  if (result.outcome === "refused") return { ...nothing, state: "unfetchable", says: result.says };
  if (result.outcome !== "answered") return { ...nothing, state: "silent", says: `${result.outcome}: ${result.says}` };
  const inTime = result.totalMs + (mcp?.seen.initialize_ms ?? 0) <= LIVE_MS;
  if (result.status === 402) {
    const read = mcp ? readToolTerms(mcp, result, rail) : readTerms(result, rail, request.url);
    return { state: read.readable ? "asked" : "malformed", live: read.readable && inTime, wall: false, read };
  }
  if (isWall(result.status, result.headers, result.body)) return { ...nothing, state: "wall", wall: true };
  if (result.status >= 200 && result.status < 300) return { ...nothing, state: "free", live: inTime };
  return { ...nothing, state: "status", says: mcp?.says ?? `status ${result.status}` };
}

/** Ours when we never asked, or when the control call failed too; `blocked` for a wall; else the seller's own doing. */
function faultOf(judged: Judged, control: ControlSeen | null): Handshake["fault"] {
  if (judged.state === "unfetchable" || control?.ok === false) return "ours";
  return judged.wall ? "blocked" : null;
}

/**
 * One free handshake: asks with the declared verb and example, reads the terms, compares them with the seller's own
 * listing. Never throws for what the stranger does; rejects when `signal` aborts.
 * @param relist reads the seller's listing anew; asked only when the 402 differs from the one we know
 */
export async function knock(
  tools: KnockTools,
  request: Request,
  sellerClaims: Claims | null,
  clock: Clock,
  relist?: () => Promise<Claims | null>,
): Promise<Knock> {
  const exchanged = await ask(tools, request);
  tools.signal?.throwIfAborted();
  const { result, mcp } = exchanged;
  const judged = judge(exchanged, request, tools.rail);
  const { read } = judged;
  const answered = result.outcome === "answered";
  const control = judged.live || judged.state === "unfetchable" ? null : await tools.control.call(clock);
  const promisedPrice = judged.state === "free" && (sellerClaims?.offers.length ?? 0) > 0;
  let differs = promisedPrice ? defectsSeen(["no_402"]) : [];
  if (read?.readable) differs = differences(sellerClaims, read);
  if (read?.readable && differs.length > 0 && relist) differs = differences(await relist(), read);
  return {
    read,
    ...(mcp ? { mcp: mcp.seen } : {}),
    body: {
      state: judged.state,
      live: judged.live,
      honest: read?.readable ? differs.length === 0 : null,
      wall: judged.wall,
      fault: faultOf(judged, control),
      status: result.status ?? null,
      latency_ms: answered ? Math.round(result.totalMs) : null,
      price: read?.price ?? null,
      pay_to: read?.payTo ?? read?.terms.offers.find((offer) => offer.pay_to !== null)?.pay_to ?? null,
      terms: read?.terms ?? null,
      differs,
      ...(control ? { control } : {}),
      ...(judged.says === undefined ? {} : { says: clean(judged.says, 2000) }),
    },
  };
}
