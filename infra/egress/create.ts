import { type LoopWatch, STOOD_STILL_MS, watched } from "../loop-watch.ts";
import { Places } from "../shares.ts";
import { parseUrl } from "../url.ts";
import {
  ownRanges,
  pickSource,
  type Resolve,
  type Sources,
  systemResolve,
  type Target,
  type UrlRules,
  validateUrl,
} from "./address.ts";
import { type ConnectFault, type ConnectOptions, connectChecked } from "./connect.ts";
import {
  type Egress,
  type EgressRequest,
  type EgressResult,
  type LimitChanges,
  type Limits,
  limitsFor,
} from "./egress.ts";
import { type Ending, Exchange } from "./exchange.ts";
import { afterRedirect, type Dress, declaredDress, prepareHeaders, stockDress } from "./headers.ts";

/** What every hop needs and no hop changes. */
type Means = Pick<ConnectOptions, "resolve" | "ca" | "sourceTo"> & { rules: UrlRules };

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Where an answer sends this request on, or null. Only reading is repeated, so other methods stay where they are. */
function redirectOf({ end, answer }: Ending, method: string, from: URL): string | null {
  if (end !== "answered" || !REDIRECTS.has(answer!.status) || (method !== "GET" && method !== "HEAD")) return null;
  const location = answer!.headers.location;
  if (location === undefined) return null;
  return parseUrl(location, from)?.href ?? location;
}

/** Host as sent: without the trailing dot that the url may have. */
function hostOf({ url, host, literal }: Target): string {
  const name = literal ? url.hostname.replace(/\.$/, "") : host;
  return url.port === "" ? name : `${name}:${url.port}`;
}

/**
 * The exchange and, where the profile has them, its redirects. Each hop is validated, resolved and checked anew and sees
 * nothing of the headers and the body that were meant for the first.
 */
async function follow(
  request: EgressRequest,
  first: { target: Target; headers: Map<string, string> },
  course: Course,
  means: Means,
): Promise<EgressResult> {
  const { limits, signal } = course;
  let { target, headers } = first;
  for (let hop = 0; ; hop++) {
    const connected = await connectChecked(target, { ...means, limits, signal });
    if ("fault" in connected) return unconnected(connected, course);
    const { socket, remoteAddress } = connected;
    const usedMs = sinceStart(course, performance.now());
    if (usedMs > limits.totalMs) {
      socket.destroy();
      return late(course);
    }
    const { method } = request;
    const path = target.url.pathname + target.url.search;
    const question = { method, host: hostOf(target), path, headers, body: hop === 0 ? request.body : undefined };
    const ending = await Exchange.run(socket, question, limits, usedMs, signal);
    course.startedAt ??= ending.sentAt;
    const location = hop < limits.hops ? redirectOf(ending, method, target.url) : null;
    if (location === null) return ended(ending, course, { remoteAddress, url: target.url.href });
    const verdict = validateUrl(location, means.rules);
    if (!verdict.ok) return unconnected({ ...verdict, fault: "refused", says: `redirect: ${verdict.says}` }, course);
    target = verdict.target;
    headers = afterRedirect(headers);
  }
}

export interface EgressOptions {
  /** Development switch: loopback addresses, any port and plain names such as localhost. Off in production. */
  allowLoopback: boolean;
  /** Ports besides 80 and 443. */
  extraPorts?: readonly number[];
  /** Public addresses or networks of ours that no interface of this machine shows. */
  ownAddresses?: readonly string[];
  /** All addresses of a name; default: the machine's name servers. */
  resolve?: Resolve;
  /** Fetches at once that are of no pool (default 64). */
  maxConcurrent?: number;
  /** Fetches of one pool that wait for a place (default 1,024). */
  maxWaiting?: number;
  /** Pools that have places of their own, and how many: no pool waits for another. */
  pools?: Readonly<Record<string, number>>;
  /** What requests call themselves that say whose they are. */
  userAgent: string;
  /** Addresses that connections leave from; default: the system's choice. */
  sources?: Sources;
  /** PEM of the roots to trust instead of the built-in ones. */
  ca?: string;
  /** Changes to the table of limits. */
  limits?: LimitChanges;
  /** Looks at the loop that takes the times; default: nobody does, and every time is taken for the stranger's. */
  loop?: LoopWatch;
}

const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

class GuardedEgress implements Egress {
  readonly #means: Means;
  readonly #pools: ReadonlyMap<string, Places>;
  readonly #others: Places;
  /** Fetches under way: how to call each off, and when it is over. */
  readonly #underway = new Map<AbortController, Promise<EgressResult>>();
  readonly #declared: Dress;
  #closed = false;

  constructor(private readonly options: EgressOptions) {
    const { allowLoopback, extraPorts = [], ownAddresses = [], userAgent } = options;
    this.#declared = declaredDress(userAgent);
    const agent = prepareHeaders({ "user-agent": userAgent }, this.#declared);
    if (!agent.ok) throw new TypeError(`user agent: ${agent.says}`);
    this.#means = {
      rules: { allowLoopback, extraPorts, own: ownRanges(ownAddresses) },
      resolve: options.resolve ?? systemResolve(),
      ca: options.ca,
    };
    const { maxConcurrent = 64, maxWaiting: waiting = 1_024, pools = {} } = options;
    const placesOf = (name: string, size: number) => new Places({ name, size, waiting });
    this.#pools = new Map(Object.entries(pools).map(([pool, size]) => [pool, placesOf(`egress of ${pool}`, size)]));
    this.#others = placesOf("egress of others", maxConcurrent);
  }

  validate(url: string): ReturnType<Egress["validate"]> {
    const verdict = validateUrl(url, this.#means.rules);
    return verdict.ok ? { ok: true } : verdict;
  }

  async fetch(request: EgressRequest): Promise<EgressResult> {
    if (this.#closed) return unsent({ says: "egress is closed" });
    const stop = new AbortController();
    const off = () => stop.abort();
    request.signal?.addEventListener("abort", off, { once: true });
    if (request.signal?.aborted) off();
    const work = this.#inTurn(request, stop.signal);
    this.#underway.set(stop, work);
    try {
      return await work;
    } finally {
      this.#underway.delete(stop);
      request.signal?.removeEventListener("abort", off);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const stop of this.#underway.keys()) stop.abort();
    await Promise.allSettled(this.#underway.values());
  }

  async #inTurn(request: EgressRequest, signal: AbortSignal): Promise<EgressResult> {
    const verdict = validateUrl(request.url, this.#means.rules);
    if (!verdict.ok) return unsent(verdict);
    if (!METHODS.has(request.method)) return unsent({ says: `method ${request.method} is not used here` });
    const { stock } = request;
    const { target } = verdict;
    const dress = stock === undefined ? this.#declared : stockDress(target.tls);
    const prepared = prepareHeaders(request.headers ?? {}, dress);
    if (!prepared.ok) return unsent(prepared);
    const whole = limitsFor(request, this.options.limits ?? {});
    const came = performance.now();
    const pool = this.#pools.get(request.pool ?? request.profile) ?? this.#others;
    const place = await pool.take(request.holder ?? {}, AbortSignal.any([signal, AbortSignal.timeout(whole.totalMs)]));
    if (!place) return unsent({ says: signal.aborted ? "called off" : "our side: too many fetches are waiting" });
    const waitedMs = Math.floor(performance.now() - came);
    try {
      const first = { target, headers: prepared.headers };
      const limits = { ...whole, totalMs: whole.totalMs - waitedMs };
      const { declared = [], stock: others = [] } = this.options.sources ?? {};
      const sources = stock === undefined ? declared : others;
      const sourceTo = (address: string) => pickSource(sources, address, stock ?? target.host);
      const exchange = () => follow(request, first, { limits, signal }, { ...this.#means, sourceTo });
      const [result, loop] = this.options.loop ? await watched(this.options.loop, exchange) : [await exchange()];
      // A deadline that passed because we came late is no more the stranger's than one that we overslept.
      const late = result.outcome === "timeout" && waitedMs > STOOD_STILL_MS;
      if (late) return { ...result, loop: { stoodStill: true, atEnd: true } };
      return loop?.stoodStill ? { ...result, loop } : result;
    } finally {
      place.leave();
    }
  }
}

/**
 * The one way to what strangers name; see egress.ts for the contract. Each fetch has a connection of its own, made to
 * an address that was checked and closed afterwards. Times count from the first byte of the (first) request out:
 * resolving, connecting and TLS come before and are bounded apart (3 s a step). The deadline holds for waiting for a
 * place and the exchange together. `totalMs` is 0 when nothing left.
 *
 * `refused` without a `reason` is our own side (called off, no place, no file handles, a header with CR LF): it is
 * nothing about the stranger. `sent` is false only when not a byte of any request was handed to a socket. A body in
 * gzip, deflate or br comes decoded; the headers stay as they were sent. On redirects past the profile's number, and
 * on those of other methods than GET and HEAD, the redirect itself is the answer.
 * @throws TypeError here, for an own address that is none or an unsafe user agent, RangeError for a pool without a
 * place; `fetch` does not throw.
 */
export const createEgress = (options: EgressOptions): Egress => new GuardedEgress(options);

type Failure = Extract<EgressResult, { sent: boolean }>;

/** One fetch on its way over its hops. */
interface Course {
  readonly limits: Limits;
  readonly signal: AbortSignal;
  /** First byte out of the first hop: where all times of the result count from. */
  startedAt?: number;
}

/** ms since the first byte out; 0 when none left. */
const sinceStart = ({ startedAt }: Course, now: number): number => (startedAt === undefined ? 0 : now - startedAt);

/** We did not connect. Without a reason the cause is ours (or the caller's) and says nothing about the stranger. */
const unsent = ({ says, reason }: Pick<Failure, "says" | "reason">): Failure => ({
  outcome: "refused",
  ...(reason && { reason }),
  says,
  totalMs: 0,
  sent: false,
});

function unconnected(fault: ConnectFault, course: Course): Failure {
  const sent = course.startedAt !== undefined;
  const totalMs = sinceStart(course, performance.now());
  if (fault.fault === "refused") return { ...unsent(fault), totalMs, sent };
  return { outcome: fault.fault === "ours" ? "refused" : "transport", says: fault.says, totalMs, sent };
}

/** The total ran out between two hops. */
const late = (course: Course): Failure => ({
  outcome: "timeout",
  says: `not done within ${course.limits.totalMs} ms`,
  totalMs: sinceStart(course, performance.now()),
  sent: course.startedAt !== undefined,
});

/** Called off is ours: before the first byte it is `refused`, after it what a watcher of the wire would have seen. */
function outcomeOf({ end, sentAt, answer }: Ending): EgressResult["outcome"] {
  if (end !== "off") return end;
  if (sentAt === undefined) return "refused";
  return answer ? "cut" : "transport";
}

/** The result of an exchange that took place; `from` says where the last hop led. */
function ended(ending: Ending, course: Course, from: { remoteAddress: string; url: string }): EgressResult {
  const outcome = outcomeOf(ending);
  const totalMs = sinceStart(course, ending.endedAt);
  const { answer, says } = ending;
  const seen = answer && {
    status: answer.status,
    headers: answer.headers,
    body: answer.body,
    headersMs: sinceStart(course, answer.headersAt),
  };
  if (outcome === "answered") return { outcome, ...seen!, totalMs, ...from };
  return { outcome, says, ...seen, totalMs, sent: course.startedAt !== undefined };
}
