import { setImmediate } from "node:timers/promises";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import { type LoopStall, type LoopWatch, withLoopWatch } from "../../../infra/loop-watch.ts";
import { rfc3339 } from "../../record/time.ts";
import { callTool, type ToolExchange } from "../mcp/session.ts";
import type { Reader } from "../reading/reader.ts";
import type { Request, ToolCall } from "./request.ts";
import { stockHeaders } from "./stock.ts";

/** One exchange with an endpoint: over HTTP, or a tool's call in the form of one. */
export interface Exchanged {
  result: EgressResult & { raw?: Uint8Array };
  /**
   * Did the event loop stand still that took the times? For a tool this includes our own, which takes messages apart.
   */
  loop: LoopStall;
  /** Only for a tool. */
  mcp?: ToolExchange;
}

/** What an exchange is made with. */
export interface ExchangeDeps {
  egress: Egress;
  reader: Reader;
  /** Watches this process's event loop, on which an MCP session runs. */
  loop: LoopWatch;
}

export interface ExchangeOptions {
  profile: Profile;
  deadlineMs?: number;
  /** The signed payment and the HTTP header for it; a tool gets it in its call. */
  payment?: { header: string; value: string };
  /** For a request of a blind call: name of the stock client as which it leaves (stock.ts). */
  stock?: string | undefined;
  signal?: AbortSignal | undefined;
}

const STEADY: LoopStall = { stoodStill: false, atEnd: false };

/** Time for a whole exchange with a tool without payment, ms: as long as a handshake over HTTP may take. */
const FREE_TOTAL_MS = 20_000;

export async function exchange(means: ExchangeDeps, request: Request, how: ExchangeOptions): Promise<Exchanged> {
  const { tool } = request;
  if (!tool) {
    const result = await asked(means, request, how);
    return { result, loop: result.loop ?? STEADY };
  }
  const [mcp, ours] = await withLoopWatch(means.loop, () => calledTool(means, request, tool, how));
  const { result } = mcp;
  const { stoodStill, atEnd } = result.loop ?? STEADY;
  return { result, mcp, loop: { stoodStill: stoodStill || ours.stoodStill, atEnd: atEnd || ours.atEnd } };
}

function calledTool(
  { egress, reader }: ExchangeDeps,
  { url }: Request,
  tool: ToolCall,
  how: ExchangeOptions,
): Promise<ToolExchange> {
  const { profile, deadlineMs, payment, signal, stock } = how;
  const totalMs = deadlineMs ?? FREE_TOTAL_MS;
  return callTool(egress, { url, tool, profile, totalMs, payment: payment?.value, signal, stock }, reader);
}

function asked({ egress }: ExchangeDeps, request: Request, how: ExchangeOptions): Promise<EgressResult> {
  const { url, method, headers, body } = request;
  const { profile, deadlineMs, payment, signal, stock } = how;
  const declared = payment ? { ...headers, [payment.header.toLowerCase()]: payment.value } : headers;
  return egress.fetch({
    url,
    method,
    headers: stock === undefined ? declared : stockHeaders(request, payment),
    ...(body ? { body } : {}),
    profile,
    ...(deadlineMs === undefined ? {} : { deadlineMs }),
    ...(signal ? { signal } : {}),
    ...(stock === undefined ? {} : { stock }),
  });
}

/** Recorded as the reason why an exchange has no latency. */
export const STOOD_STILL = "our own event loop stood still meanwhile: no time was taken";

/** Outcomes that follow from waiting too long. While our event loop stood still, an answer may have arrived unseen. */
const WAITED: ReadonlySet<EgressResult["outcome"]> = new Set(["timeout", "transport", "cut"]);

/** Did this exchange end without an answer because our own event loop stood still? */
export const endedByUs = ({ result, loop }: Pick<Exchanged, "result" | "loop">): boolean =>
  loop.atEnd && WAITED.has(result.outcome);

/** Result of the control calls. */
export type ControlSeen = {
  url: string;
  ok: boolean;
  at: string;
};

/** For this long a control call that failed also excuses later failures, real ms. */
const FRESH_MS = 5_000;

interface ControlCall {
  at: number;
  begun: boolean;
  seen: Promise<Pick<ControlSeen, "url" | "ok">>;
}

/**
 * Makes control calls: requests to addresses that we know to be up. If more than half of them fail too, the seller's
 * failure is our fault (verification-method.md section 1). One address of several that is down excuses nobody, and
 * without an address nothing is ever excused. A control call that was answered proves nothing about a later failure,
 * since an outage of ours may have begun in between; so only failures of one moment share a call. A control call that
 * failed also excuses the failures of the next seconds. The record names one of the addresses that decided.
 */
export class Control {
  #last: ControlCall | null = null;

  constructor(
    private readonly egress: Egress,
    private readonly urls: readonly string[],
  ) {}

  async call(clock: Clock): Promise<ControlSeen | null> {
    if (this.urls.length === 0) return null;
    const before = this.#last;
    const isFresh = before !== null && clock.monotonic() - before.at <= FRESH_MS;
    const known = isFresh && before.begun ? await before.seen : null;
    const seen = known !== null && !known.ok ? known : await this.#unsent(clock).seen;
    return { ...seen, at: rfc3339(clock.now()) };
  }

  /** The calls that have not been sent yet and that other failures of this moment share. */
  #unsent(clock: Clock): ControlCall {
    if (this.#last && !this.#last.begun) return this.#last;
    const leave = async () => {
      await setImmediate();
      calls.begun = true;
      return this.#ask();
    };
    const calls: ControlCall = { at: clock.monotonic(), begun: false, seen: leave() };
    this.#last = calls;
    return calls;
  }

  async #ask(): Promise<Pick<ControlSeen, "url" | "ok">> {
    const seen = await Promise.all(this.urls.map(async (url) => ({ url, ok: await this.#answers(url) })));
    const ok = seen.filter((one) => one.ok).length * 2 >= seen.length;
    return seen.find((one) => one.ok === ok)!;
  }

  async #answers(url: string): Promise<boolean> {
    const result = await this.egress.fetch({ url, method: "GET", profile: "control" });
    return result.outcome === "answered" && result.status < 500;
  }
}
