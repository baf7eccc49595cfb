import { setImmediate } from "node:timers/promises";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import { type LoopStall, type LoopWatch, withLoopWatch } from "../../../infra/loop-watch.ts";
import { rfc3339 } from "../../record/time.ts";
import { callTool, type ToolExchange } from "../mcp/session.ts";
import type { Reader } from "../reading/reader.ts";
import type { Request, ToolCall } from "./request.ts";
import { stockHeaders } from "./stock.ts";

/**
 * The result of one exchange with an endpoint: over HTTP, or an MCP tool's call converted to the form of an HTTP
 * exchange.
 */
export interface ExchangeResult {
  result: EgressResult & { raw?: Uint8Array };
  /**
   * Did the event loop that measured the times stall meanwhile? For a tool this includes the loop of this process,
   * which parses messages.
   */
  loop: LoopStall;
  /** Only for a tool. */
  mcp?: ToolExchange;
}

/** The parts that an exchange needs. */
export interface ExchangeDeps {
  egress: Egress;
  reader: Reader;
  /** Detects stalls of this process's event loop, on which an MCP session runs. */
  loop: LoopWatch;
}

export interface ExchangeOptions {
  profile: Profile;
  deadlineMs?: number;
  /** The signed payment and the HTTP header for it. A tool gets the payment in its call instead. */
  payment?: { header: string; value: string };
  /**
   * Set for a request of a blind call (one that must look like any buyer's): the stock client whose connection and
   * headers it uses (stock.ts).
   */
  stock?: string | undefined;
  signal?: AbortSignal | undefined;
}

const NO_STALL: LoopStall = { stoodStill: false, atEnd: false };

/** Longest time for a whole exchange with a tool without payment, ms: the time that a handshake over HTTP may take. */
const FREE_TOTAL_MS = 20_000;

export async function exchange(
  deps: ExchangeDeps,
  request: Request,
  options: ExchangeOptions,
): Promise<ExchangeResult> {
  const { tool } = request;
  if (!tool) {
    const result = await fetchRequest(deps, request, options);
    return { result, loop: result.loop ?? NO_STALL };
  }
  const [mcp, ours] = await withLoopWatch(deps.loop, () => callToolRequest(deps, request, tool, options));
  const { result } = mcp;
  const { stoodStill, atEnd } = result.loop ?? NO_STALL;
  return { result, mcp, loop: { stoodStill: stoodStill || ours.stoodStill, atEnd: atEnd || ours.atEnd } };
}

function callToolRequest(
  { egress, reader }: ExchangeDeps,
  { url }: Request,
  tool: ToolCall,
  options: ExchangeOptions,
): Promise<ToolExchange> {
  const { profile, deadlineMs, payment, signal, stock } = options;
  const totalMs = deadlineMs ?? FREE_TOTAL_MS;
  return callTool(egress, { url, tool, profile, totalMs, payment: payment?.value, signal, stock }, reader);
}

function fetchRequest({ egress }: ExchangeDeps, request: Request, options: ExchangeOptions): Promise<EgressResult> {
  const { url, method, headers, body } = request;
  const { profile, deadlineMs, payment, signal, stock } = options;
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
export const LOOP_STALLED_TEXT = "our own event loop stood still meanwhile: no time was taken";

/**
 * Outcomes of an exchange that may be caused by a stall of our own event loop, since an answer may have arrived unseen.
 */
const WAITING_OUTCOMES: ReadonlySet<EgressResult["outcome"]> = new Set(["timeout", "transport", "cut"]);

/** Did this exchange end without an answer because our own event loop was stalled? */
export const didOurStallEndIt = ({ result, loop }: Pick<ExchangeResult, "result" | "loop">): boolean =>
  loop.atEnd && WAITING_OUTCOMES.has(result.outcome);

/** Result of the control calls. */
export type ControlSeen = {
  url: string;
  ok: boolean;
  at: string;
};

/** For this long a failed control call also excuses later failures, real ms. */
const FAILURE_SHARED_MS = 5_000;

interface ControlCall {
  at: number;
  begun: boolean;
  seen: Promise<Pick<ControlSeen, "url" | "ok">>;
}

/**
 * Makes control calls: requests to addresses that we know to be up. If more than half of them fail too, the seller's
 * failure counts as our fault (verification-method.md section 1). If only one of several addresses is down, nothing is
 * excused; without an address nothing is ever excused. An answered control call tells nothing about a later failure,
 * since our outage may have begun in between; so only failures at one moment share a control call. A failed control
 * call also excuses the failures of the next seconds. The record names one of the addresses that decided.
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
    const isFresh = before !== null && clock.monotonic() - before.at <= FAILURE_SHARED_MS;
    const known = isFresh && before.begun ? await before.seen : null;
    const seen = known !== null && !known.ok ? known : await this.#pendingCall(clock).seen;
    return { ...seen, at: rfc3339(clock.now()) };
  }

  /** The control calls that are about to be sent. All failures at this moment share them. */
  #pendingCall(clock: Clock): ControlCall {
    if (this.#last && !this.#last.begun) return this.#last;
    const leave = async () => {
      await setImmediate();
      calls.begun = true;
      return this.#callAll();
    };
    const calls: ControlCall = { at: clock.monotonic(), begun: false, seen: leave() };
    this.#last = calls;
    return calls;
  }

  async #callAll(): Promise<Pick<ControlSeen, "url" | "ok">> {
    const seen = await Promise.all(this.urls.map(async (url) => ({ url, ok: await this.#isUp(url) })));
    const mostAreUp = seen.filter((one) => one.ok).length * 2 >= seen.length;
    return seen.find((one) => one.ok === mostAreUp)!;
  }

  async #isUp(url: string): Promise<boolean> {
    const result = await this.egress.fetch({ url, method: "GET", profile: "control" });
    return result.outcome === "answered" && result.status < 500;
  }
}
