import type { Clock } from "../../infra/clock.ts";
import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import type { Control, ControlSeen } from "./control.ts";
import { defectsSeen } from "./defects.ts";
import { differences } from "./honesty.ts";
import type { Request } from "./input.ts";
import { clean, type Named } from "./json.ts";
import { type ReadTerms, readTerms } from "./terms.ts";
import { isWall } from "./wall.ts";

type Handshake = Named<BodyOf<"handshake">>;

/** A handshake that takes longer is not live (grading-method.md section 1). */
export const LIVE_MS = 10_000;

/** What a knock saw. `read` is kept for the payment that may follow; the rest is the record's. */
export interface Knock {
  body: Omit<Handshake, "slot" | "planned">;
  read: ReadTerms | null;
}

export interface KnockTools {
  egress: Egress;
  rail: Pick<Rail, "canPay" | "network">;
  control: Control;
  signal?: AbortSignal | undefined;
}

async function ask(tools: KnockTools, request: Request): Promise<EgressResult> {
  const { url, method, headers, body } = request;
  const send = () =>
    tools.egress.fetch({
      url,
      method,
      headers,
      ...(body ? { body } : {}),
      profile: "handshake",
      ...(tools.signal ? { signal: tools.signal } : {}),
    });
  const first = await send();
  tools.signal?.throwIfAborted();
  // One lost packet must not read as an outage: a transport error is retried once, anything else is an answer.
  return first.outcome === "transport" ? send() : first;
}

interface Judged {
  state: Handshake["state"];
  live: boolean;
  wall: boolean;
  read: ReadTerms | null;
  says?: string;
}

function judge(result: EgressResult, request: Request, rail: KnockTools["rail"]): Judged {
  const nothing = { live: false, wall: false, read: null };
  if (result.outcome === "refused") return { ...nothing, state: "unfetchable", says: result.says };
  if (result.outcome !== "answered") return { ...nothing, state: "silent", says: `${result.outcome}: ${result.says}` };
  const inTime = result.totalMs <= LIVE_MS;
  if (result.status === 402) {
    const read = readTerms(result, rail, request.url);
    return { state: read.readable ? "asked" : "malformed", live: read.readable && inTime, wall: false, read };
  }
  if (isWall(result.status, result.headers, result.body)) return { ...nothing, state: "wall", wall: true };
  if (result.status >= 200 && result.status < 300) return { ...nothing, state: "free", live: inTime };
  return { ...nothing, state: "status", says: `status ${result.status}` };
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
  const result = await ask(tools, request);
  tools.signal?.throwIfAborted();
  const judged = judge(result, request, tools.rail);
  const { read } = judged;
  const answered = result.outcome === "answered";
  const control = judged.live || judged.state === "unfetchable" ? null : await tools.control.call(clock);
  const promisedPrice = judged.state === "free" && (sellerClaims?.offers.length ?? 0) > 0;
  let differs = promisedPrice ? defectsSeen(["no_402"]) : [];
  if (read?.readable) differs = differences(sellerClaims, read);
  if (read?.readable && differs.length > 0 && relist) differs = differences(await relist(), read);
  return {
    read,
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
