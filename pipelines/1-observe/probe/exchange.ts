import { setImmediate } from "node:timers/promises";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import { type LoopStall, type LoopWatch, withLoopWatch } from "../../../infra/loop-watch.ts";
import { rfc3339 } from "../../record/time.ts";
import type { PaymentForm } from "../mcp/answers.ts";
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
  /** Set only for the call of an MCP tool. */
  mcp?: ToolExchange;
}

/** The dependencies of an exchange. */
export interface ExchangeDeps {
  egress: Egress;
  reader: Reader;
  /** Detects stalls of this process's event loop, on which an MCP session runs. */
  loop: LoopWatch;
}

export interface ExchangeOptions {
  profile: Profile;
  /** Time for the whole exchange, ms; default: that of the profile, for a tool {@link UNPAID_TOOL_TIMEOUT_MS}. */
  deadlineMs?: number;
  /**
   * The signed payment and the HTTP header for it. A tool gets the payment in its call instead, in the form that its
   * demand suggests (`form`).
   */
  payment?: { header: string; value: string; form?: PaymentForm | undefined };
  /**
   * Set for a request of a blind call (one that must look like any buyer's): the stock client whose connection and
   * headers it uses (stock.ts).
   */
  stock?: string | undefined;
  signal?: AbortSignal | undefined;
}

const NOT_STALLED: LoopStall = { stoodStill: false, atEnd: false };

/**
 * Longest time for a whole exchange with a tool without payment, ms: the time that a probe of an HTTP endpoint may
 * take.
 */
const UNPAID_TOOL_TIMEOUT_MS = 20_000;

/** Makes one exchange: an HTTP request, or for a tool a whole session with its MCP server. */
export async function exchange(
  deps: ExchangeDeps,
  request: Request,
  options: ExchangeOptions,
): Promise<ExchangeResult> {
  const { tool } = request;
  if (!tool) {
    const result = await fetchRequest(deps, request, options);
    return { result, loop: result.loop ?? NOT_STALLED };
  }
  const [mcp, ownLoop] = await withLoopWatch(deps.loop, () => callToolRequest(deps, request, tool, options));
  const { result } = mcp;
  const { stoodStill, atEnd } = result.loop ?? NOT_STALLED;
  return { result, mcp, loop: { stoodStill: stoodStill || ownLoop.stoodStill, atEnd: atEnd || ownLoop.atEnd } };
}

function callToolRequest(
  { egress, reader }: ExchangeDeps,
  { url }: Request,
  tool: ToolCall,
  options: ExchangeOptions,
): Promise<ToolExchange> {
  const { profile, deadlineMs, payment, signal, stock } = options;
  const totalMs = deadlineMs ?? UNPAID_TOOL_TIMEOUT_MS;
  const { value, form } = payment ?? {};
  const call = { url, tool, profile, totalMs, payment: value, paymentForm: form, signal, stock };
  return callTool(egress, call, reader);
}

function fetchRequest({ egress }: ExchangeDeps, request: Request, options: ExchangeOptions): Promise<EgressResult> {
  const { url, method, headers, body } = request;
  const { profile, deadlineMs, payment, signal, stock } = options;
  const requestHeaders = payment ? { ...headers, [payment.header.toLowerCase()]: payment.value } : headers;
  return egress.fetch({
    url,
    method,
    headers: stock === undefined ? requestHeaders : stockHeaders(request, payment),
    ...(body ? { body } : {}),
    profile,
    ...(deadlineMs === undefined ? {} : { deadlineMs }),
    ...(signal ? { signal } : {}),
    ...(stock === undefined ? {} : { stock }),
  });
}

/** The text that is recorded as the reason why an exchange has no latency. */
export const LOOP_STALLED_TEXT = "our own event loop stood still meanwhile: no time was taken";

/**
 * Outcomes of an exchange that may be caused by a stall of our own event loop, since an answer may have arrived unseen.
 */
const OUTCOMES_A_STALL_MAY_CAUSE: ReadonlySet<EgressResult["outcome"]> = new Set(["timeout", "transport", "cut"]);

/** Did this exchange end without an answer because our own event loop was stalled? */
export const didOurStallEndIt = ({ result, loop }: Pick<ExchangeResult, "result" | "loop">): boolean =>
  loop.atEnd && OUTCOMES_A_STALL_MAY_CAUSE.has(result.outcome);

/**
 * Result of the control calls. `ok`: at least half of the addresses answered. `url`: the first address that answered if
 * `ok`, else the first that did not. `at`: when the result was returned, RFC 3339.
 */
export type ControlResult = {
  url: string;
  ok: boolean;
  at: string;
};

/** Time in which a failed control call also excuses later failures, real ms. */
const FAILURE_LIFETIME_MS = 5_000;

interface ControlCall {
  /** When the control call was created, ms of the clock's `monotonic`. */
  startedAtMs: number;
  /** Were the requests of this control call sent? Until then further failures share it. */
  isStarted: boolean;
  result: Promise<Pick<ControlResult, "url" | "ok">>;
}

/**
 * Makes control calls: requests to addresses that we know to be up. If more than half of them fail too, the seller's
 * failure counts as our fault (verification-method.md section 1). If only one of several addresses is down, nothing is
 * excused; without an address nothing is ever excused. An answered control call proves nothing about a later failure,
 * since our outage may have begun in between. So only failures at one moment share a control call. A failed control
 * call also excuses the failures of the next seconds. The record names one address of the majority.
 */
export class ControlCalls {
  #newest: ControlCall | null = null;

  constructor(
    private readonly egress: Egress,
    private readonly urls: readonly string[],
  ) {}

  /** Returns the result for a failure that happened just now; null if there are no addresses. */
  async call(clock: Clock): Promise<ControlResult | null> {
    if (this.urls.length === 0) return null;
    const previousCall = this.#newest;
    const isRecent = previousCall !== null && clock.monotonic() - previousCall.startedAtMs <= FAILURE_LIFETIME_MS;
    const recentResult = isRecent && previousCall.isStarted ? await previousCall.result : null;
    const result = recentResult !== null && !recentResult.ok ? recentResult : await this.#pendingCall(clock).result;
    return { ...result, at: rfc3339(clock.now()) };
  }

  /** Returns the control calls that are about to be sent, which all failures of this moment share. */
  #pendingCall(clock: Clock): ControlCall {
    if (this.#newest && !this.#newest.isStarted) return this.#newest;
    const startAll = async () => {
      await setImmediate();
      calls.isStarted = true;
      return this.#callAll();
    };
    const calls: ControlCall = { startedAtMs: clock.monotonic(), isStarted: false, result: startAll() };
    this.#newest = calls;
    return calls;
  }

  async #callAll(): Promise<Pick<ControlResult, "url" | "ok">> {
    const results = await Promise.all(this.urls.map(async (url) => ({ url, ok: await this.#isUp(url) })));
    const mostAreUp = results.filter((one) => one.ok).length * 2 >= results.length;
    return results.find((one) => one.ok === mostAreUp)!;
  }

  async #isUp(url: string): Promise<boolean> {
    const result = await this.egress.fetch({ url, method: "GET", profile: "control" });
    return result.outcome === "answered" && result.status < 500;
  }
}
