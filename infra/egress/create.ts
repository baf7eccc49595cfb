import { LOOP_STALL_MS, type LoopWatch, withLoopWatch } from "../loop-watch.ts";
import { Places } from "../shares.ts";
import { parseUrl } from "../url.ts";
import {
  createSystemResolver,
  ownRanges,
  pickSource,
  type Resolve,
  type Sources,
  type Target,
  type UrlRules,
  validateUrl,
} from "./address.ts";
import { type ConnectFault, type ConnectOptions, connectChecked, tlsOf } from "./connect.ts";
import {
  type Egress,
  type EgressRequest,
  type EgressResult,
  type LimitChanges,
  type Limits,
  limitsFor,
  type TracedHop,
} from "./egress.ts";
import { Exchange, type ExchangeEnd } from "./exchange.ts";
import { declaredHeaders, type HeaderTemplate, headersAfterRedirect, prepareHeaders, stockHeaders } from "./headers.ts";

/**
 * Options for connecting. All except `sourceTo` are equal for all hops (requests of a chain of redirects) of all
 * fetches.
 */
type HopOptions = Pick<ConnectOptions, "resolve" | "ca" | "sourceTo"> & { rules: UrlRules };

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/**
 * Returns the address to which an answer redirects this request, or null. Only redirects of GET and HEAD are followed.
 */
function redirectTarget({ end, answer }: ExchangeEnd, method: string, baseUrl: URL): string | null {
  if (end !== "answered" || !REDIRECTS.has(answer!.status) || (method !== "GET" && method !== "HEAD")) return null;
  const location = answer!.headers.location;
  if (location === undefined) return null;
  return parseUrl(location, baseUrl)?.href ?? location;
}

/** Returns the value of the header Host for a url: host and port, without the trailing dot that the host may have. */
function hostOf({ url, host, literal }: Target): string {
  const name = literal ? url.hostname.replace(/\.$/, "") : host;
  return url.port === "" ? name : `${name}:${url.port}`;
}

/**
 * Sends the request and follows as many redirects as the limits allow. The url and the addresses of each hop are
 * checked. Hops after the first get no body and only the headers of `headersAfterRedirect`.
 */
async function fetchFollowingRedirects(
  request: EgressRequest,
  firstHop: { target: Target; headers: Map<string, string> },
  state: FetchState,
  options: HopOptions,
): Promise<EgressResult> {
  const { limits, signal } = state;
  let { target, headers } = firstHop;
  const trace: TracedHop[] = [];
  for (let hop = 0; ; hop++) {
    const connected = await connectChecked(target, { ...options, limits, signal });
    if ("fault" in connected) return createUnconnectedResult(connected, state);
    const { socket, remoteAddress } = connected;
    const usedMs = state.waitedMs + msSinceStart(state, performance.now());
    if (usedMs > limits.totalMs) {
      socket.destroy();
      return createTimeoutResult(state);
    }
    const { method } = request;
    const path = target.url.pathname + target.url.search;
    const httpRequest = { method, host: hostOf(target), path, headers, body: hop === 0 ? request.body : undefined };
    // The details of TLS are read before the exchange, which closes the connection at its end.
    const tls = request.trace ? tlsOf(socket) : null;
    const ending = await Exchange.run(socket, httpRequest, limits, usedMs, signal);
    state.startedAt ??= ending.sentAt;
    const location = hop < limits.hops ? redirectTarget(ending, method, target.url) : null;
    const { status = 0, headers: received = {} } = ending.answer ?? {};
    const isRedirect = status >= 300 && status < 400;
    trace.push({
      url: target.url.href,
      status,
      location: (isRedirect && received.location) || null,
      address: remoteAddress,
      tls,
    });
    const lastHop = { remoteAddress, url: target.url.href, ...(request.trace ? { trace } : {}) };
    if (location === null) return createResult(ending, state, lastHop);
    const verdict = validateUrl(location, options.rules);
    if (!verdict.ok)
      return createUnconnectedResult({ ...verdict, fault: "refused", says: `redirect: ${verdict.says}` }, state);
    target = verdict.target;
    headers = headersAfterRedirect(headers);
  }
}

export interface EgressOptions {
  /** Development switch: loopback addresses, any port and plain names such as localhost. Off in production. */
  allowLoopback: boolean;
  /** Ports that may be fetched besides 80 and 443. */
  extraPorts?: readonly number[];
  /** Our own public addresses or networks that are on no interface of this machine; they are never fetched. */
  ownAddresses?: readonly string[];
  /** Finds all addresses of a name; default: the machine's name servers. */
  resolve?: Resolve;
  /** Largest number of fetches at once of all pools together that `pools` does not name (default 64). */
  maxConcurrent?: number;
  /** Largest number of fetches of one pool that wait for a place (default 1,024). */
  maxWaiting?: number;
  /** Number of places of each pool: a fetch of one pool never waits for a fetch of another. */
  pools?: Readonly<Record<string, number>>;
  /** User-Agent of requests without the field `stock` ({@link EgressRequest}). */
  userAgent: string;
  /** Source addresses of connections; default: the system's choice. */
  sources?: Sources;
  /** PEM of the roots to trust instead of the built-in ones. */
  ca?: string;
  /** Values that replace those of the table LIMITS in egress.ts. */
  limits?: LimitChanges;
  /**
   * Watches the event loop that measures times. By default there is none, and time in which our own loop was stalled
   * counts as the stranger's.
   */
  loop?: LoopWatch;
}

const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

class GuardedEgress implements Egress {
  readonly #hopOptions: HopOptions;
  readonly #pools: ReadonlyMap<string, Places>;
  readonly #defaultPool: Places;
  /** Running fetches: the controller that aborts each, and its result. */
  readonly #runningFetches = new Map<AbortController, Promise<EgressResult>>();
  readonly #declaredTemplate: HeaderTemplate;
  #isClosed = false;

  constructor(private readonly options: EgressOptions) {
    const { allowLoopback, extraPorts = [], ownAddresses = [], userAgent } = options;
    this.#declaredTemplate = declaredHeaders(userAgent);
    const agent = prepareHeaders({ "user-agent": userAgent }, this.#declaredTemplate);
    if (!agent.ok) throw new TypeError(`user agent: ${agent.says}`);
    this.#hopOptions = {
      rules: { allowLoopback, extraPorts, own: ownRanges(ownAddresses) },
      resolve: options.resolve ?? createSystemResolver(),
      ca: options.ca,
    };
    const { maxConcurrent = 64, maxWaiting: waiting = 1_024, pools = {} } = options;
    const createPlaces = (name: string, size: number) => new Places({ name, size, waiting });
    this.#pools = new Map(Object.entries(pools).map(([pool, size]) => [pool, createPlaces(`egress of ${pool}`, size)]));
    this.#defaultPool = createPlaces("egress of others", maxConcurrent);
  }

  validate(url: string): ReturnType<Egress["validate"]> {
    const verdict = validateUrl(url, this.#hopOptions.rules);
    return verdict.ok ? { ok: true } : verdict;
  }

  async fetch(request: EgressRequest): Promise<EgressResult> {
    if (this.#isClosed) return createUnsentResult({ says: "egress is closed" });
    const controller = new AbortController();
    const abort = () => controller.abort();
    request.signal?.addEventListener("abort", abort, { once: true });
    if (request.signal?.aborted) abort();
    const work = this.#fetchInPool(request, controller.signal);
    this.#runningFetches.set(controller, work);
    try {
      return await work;
    } finally {
      this.#runningFetches.delete(controller);
      request.signal?.removeEventListener("abort", abort);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const controller of this.#runningFetches.keys()) controller.abort();
    await Promise.allSettled(this.#runningFetches.values());
  }

  async #fetchInPool(request: EgressRequest, signal: AbortSignal): Promise<EgressResult> {
    const verdict = validateUrl(request.url, this.#hopOptions.rules);
    if (!verdict.ok) return createUnsentResult(verdict);
    if (!METHODS.has(request.method)) return createUnsentResult({ says: `method ${request.method} is not used here` });
    const { stock } = request;
    const { target } = verdict;
    const template = stock === undefined ? this.#declaredTemplate : stockHeaders(target.tls);
    const prepared = prepareHeaders(request.headers ?? {}, template);
    if (!prepared.ok) return createUnsentResult(prepared);
    const requestLimits = limitsFor(request, this.options.limits ?? {});
    const askedAt = performance.now();
    const pool = this.#pools.get(request.pool ?? request.profile) ?? this.#defaultPool;
    const place = await pool.take(
      request.holder ?? {},
      AbortSignal.any([signal, AbortSignal.timeout(requestLimits.totalMs)]),
    );
    if (!place)
      return createUnsentResult({ says: signal.aborted ? "called off" : "our side: too many fetches are waiting" });
    const waitedMs = Math.floor(performance.now() - askedAt);
    try {
      const firstHop = { target, headers: prepared.headers };
      const state = { limits: requestLimits, waitedMs, signal };
      const { declared = [], stock: stockSources = [] } = this.options.sources ?? {};
      const sources = stock === undefined ? declared : stockSources;
      const sourceTo = (address: string) => pickSource(sources, address, stock ?? target.host);
      const exchange = () => fetchFollowingRedirects(request, firstHop, state, { ...this.#hopOptions, sourceTo });
      const [result, stall] = this.options.loop ? await withLoopWatch(this.options.loop, exchange) : [await exchange()];
      // The wait for a place used up part of the deadline, so the timeout is our fault. It is reported as a stall of
      // our loop.
      const isLate = result.outcome === "timeout" && waitedMs > LOOP_STALL_MS;
      if (isLate) return { ...result, loop: { stoodStill: true, atEnd: true } };
      return stall?.stoodStill ? { ...result, loop: stall } : result;
    } finally {
      place.leave();
    }
  }
}

/**
 * Makes an {@link Egress}; its contract is in egress.ts. Each hop of a fetch opens a separate connection to an address
 * that was checked, and closes it afterwards. Times count from the first byte of the (first) request. Resolving,
 * connecting and TLS happen before that byte and have separate bounds (3 s a step). The deadline covers the wait for a
 * place and the exchange together. `totalMs` is 0 when no byte was sent.
 *
 * `refused` without a `reason` has its cause on our side (aborted, no place, no file handles, a header with CR LF) and
 * proves nothing about the stranger. `sent` is false only when no byte of any request was handed to a socket. A body in
 * gzip, deflate or br is returned decoded, its headers as the server sent them. A redirect past the limit of hops, or
 * of another method than GET and HEAD, is returned as the answer.
 * @throws TypeError when an own address is not an address or the user agent is unsafe; RangeError for a pool without a
 * place. `fetch` does not throw.
 */
export const createEgress = (options: EgressOptions): Egress => new GuardedEgress(options);

type FailedResult = Extract<EgressResult, { sent: boolean }>;

/** State of one fetch over all its hops. */
interface FetchState {
  readonly limits: Limits;
  /** Time that the fetch waited for a place, which is part of the deadline, ms. */
  readonly waitedMs: number;
  readonly signal: AbortSignal;
  /** When the first byte of the first hop was sent. All times of the result count from this moment. */
  startedAt?: number;
}

/** Returns ms since the first byte was sent; 0 when none was. */
const msSinceStart = ({ startedAt }: FetchState, now: number): number =>
  startedAt === undefined ? 0 : now - startedAt;

/**
 * Makes the result of a fetch that made no connection. Without a reason the cause is ours or the caller's, not the
 * server's.
 */
const createUnsentResult = ({ says, reason }: Pick<FailedResult, "says" | "reason">): FailedResult => ({
  outcome: "refused",
  ...(reason && { reason }),
  says,
  totalMs: 0,
  sent: false,
});

function createUnconnectedResult(fault: ConnectFault, state: FetchState): FailedResult {
  const sent = state.startedAt !== undefined;
  const totalMs = msSinceStart(state, performance.now());
  if (fault.fault === "refused") return { ...createUnsentResult(fault), totalMs, sent };
  return { outcome: fault.fault === "ours" ? "refused" : "transport", says: fault.says, totalMs, sent };
}

/** Makes the result of a fetch whose deadline passed while a hop was being connected. */
const createTimeoutResult = (state: FetchState): FailedResult => ({
  outcome: "timeout",
  says: `not done within ${state.limits.totalMs} ms`,
  totalMs: msSinceStart(state, performance.now()),
  sent: state.startedAt !== undefined,
});

/**
 * Returns the outcome of an exchange. An exchange that our caller aborted is `refused` if no byte was sent, `cut` if
 * headers had arrived, else `transport`.
 */
function outcomeOf({ end, sentAt, answer }: ExchangeEnd): EgressResult["outcome"] {
  if (end !== "off") return end;
  if (sentAt === undefined) return "refused";
  return answer ? "cut" : "transport";
}

/** Makes the result of a fetch from the end of its last exchange. `lastHop` has the address and url of that hop. */
function createResult(
  ending: ExchangeEnd,
  state: FetchState,
  lastHop: { remoteAddress: string; url: string; trace?: TracedHop[] },
): EgressResult {
  const outcome = outcomeOf(ending);
  const totalMs = msSinceStart(state, ending.endedAt);
  const { answer, says } = ending;
  const received = answer && {
    status: answer.status,
    headers: answer.headers,
    body: answer.body,
    headersMs: msSinceStart(state, answer.headersAt),
  };
  if (outcome === "answered") return { outcome, ...received!, totalMs, ...lastHop };
  return { outcome, says, ...received, totalMs, sent: state.startedAt !== undefined };
}
