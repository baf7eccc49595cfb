import { BoundedMap } from "../../infra/bounded-map.ts";
import type { Log, LogRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { FairQueue } from "../../infra/shares.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { ASK_LIFETIME_MS, MIN_PROBE_INTERVAL_MS } from "../../pipelines/record/time.ts";
import { PLATFORM_CAP_FACTOR, platformOf, registrableDomain } from "../../pipelines/record/url.ts";

const HOUR_MS = 3_600_000;
/** Longest wait of an ask (a url that waits for a free probe), hours. With a longer wait it would expire first. */
export const MAX_WAIT_HOURS = 28 * 24;
/** Time after a probe until its result is in serving's tables, ms. */
const RESULT_DELAY_MS = 5 * 60_000;
/** Probes of asks that the pipeline can make in an hour: 64 at once, ten seconds each. */
const PROBES_PER_HOUR = 20_000;
/**
 * Largest number of endpoints whose last probe is remembered, and of those whose last re-test (a probe at the
 * seller's request) is.
 */
const MAX_REMEMBERED = 100_000;

/** Size of the queue of re-tests as a share of the queue of asks. */
const RETEST_SHARE = 0.1;
/**
 * Stands for the client of an ask that another replica accepted, or this process before a restart; the log does not
 * name clients.
 */
const UNKNOWN_CLIENT = "elsewhere";

export interface AskQueueLimits {
  /** Largest number of waiting asks. The largest number of waiting re-tests is a tenth of it. */
  maxAsks: number;
  /**
   * Largest number of asks of one registrable domain that are probed in an hour. A platform (a domain whose
   * subdomains cost nothing) may have {@link PLATFORM_CAP_FACTOR} times as many for all its names together.
   */
  perDomainHour: number;
}

/** The queue of one registrable domain, or of one platform. */
interface DomainQueue {
  /** Largest number of its asks that are probed in an hour. */
  perHour: number;
  /** Waiting asks in the order in which they are probed. */
  queue: WaitingAsk[];
  /** Times of the newest probes, unix ms, oldest first; at most `perHour` of them. */
  probeTimes: number[];
}

/** An ask that waits for its probe. */
interface WaitingAsk {
  /** Names of the queues that it waits in: of its domain, and of its platform if that differs. */
  queueNames: readonly string[];
  /** True for a re-test, a probe that the seller requested. False for an ask of a client. */
  isRetest: boolean;
  /** Sequence number among all asks. */
  sequence: number;
  /** When it was asked, unix ms. */
  askedAtMs: number;
  /** Earliest time of its probe, unix ms. */
  notBeforeMs: number;
  /** How much earlier than `notBeforeMs` a probe may be that also answers the ask, ms. */
  earlyByMs: number;
}

/**
 * Which wait of an ask is the longest: for other asks of its domain (`domain`), for its own earliest time (`moment`),
 * or for the whole queue (`line`).
 */
export type WaitReason = "domain" | "moment" | "line";

/** The expected wait of an ask. */
export interface ExpectedWait {
  /** Hours until an answer can be expected, at least 1. */
  hours: number;
  /** Reason of the wait; only present when `hours` is above 1. */
  by?: WaitReason;
}

/**
 * Serving's copy of the queue of asks, which are urls that clients asked about and that wait for a free probe. It
 * reads the topic `asks`, as the pipeline that probes them does, so waits are computed from the real queue, and a
 * restart loses nothing. Its size is bounded with fair shares: when it is full, an ask of a client with few asks
 * evicts the newest one of the client with most. Evicted asks stay in the log and are probed, so replicas may evict
 * different ones.
 */
export class AskQueue {
  /** Waiting asks by capability id, in the order in which they were added. */
  readonly #waiting = new Map<string, WaitingAsk>();
  readonly #asks: FairQueue<string>;
  readonly #retests: FairQueue<string>;
  readonly #domains = new Map<string, DomainQueue>();
  /** Times of the newest probes and of the newest requests for a re-test, unix ms, by capability id. */
  readonly #lastProbes = new BoundedMap<string, number>(MAX_REMEMBERED);
  readonly #lastRetests = new BoundedMap<string, number>(MAX_REMEMBERED);
  #nextSequence = 0;

  constructor(private readonly limits: AskQueueLimits) {
    this.#asks = new FairQueue({ name: "asks", size: limits.maxAsks });
    this.#retests = new FairQueue({ name: "re-tests", size: Math.ceil(RETEST_SHARE * limits.maxAsks) });
  }

  /** Number of asks that wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /**
   * Returns true if an ask of this client would be accepted, be it that another is evicted for it. Returns false if it
   * would be refused.
   * @param retest true: for a re-test, which has a queue of its own. false: for an ask
   */
  hasRoom(client: string, retest = false): boolean {
    return (retest ? this.#retests : this.#asks).wouldEvict({ client }) !== undefined;
  }

  /** Returns the earliest time at which a waiting endpoint may be probed (unix ms), or null when it does not wait. */
  earliestProbe(cap: string): number | null {
    return this.#waiting.get(cap)?.notBeforeMs ?? null;
  }

  /**
   * Returns true if an endpoint was probed within the last five minutes, so that its result may not be visible yet.
   * Returns false if the probe is older, or none is remembered.
   */
  wasJustProbed(cap: string, now: number): boolean {
    return this.#lastProbeOf(cap) > now - RESULT_DELAY_MS;
  }

  /** Returns when the newest re-test of an endpoint was requested, unix ms, or null. */
  lastRetest(cap: string): number | null {
    return this.#lastRetests.get(cap) ?? null;
  }

  /**
   * Returns the earliest time at which an ask that is made now may be probed (unix ms): an endpoint is probed for
   * asks once a day at most.
   */
  earliestNewProbe(cap: string, now: number): number {
    return Math.max(now, this.#lastProbeOf(cap) + MIN_PROBE_INTERVAL_MS + 1);
  }

  /**
   * Adds an ask. Nothing changes if the endpoint already waits for a probe that is not later, if it was probed lately,
   * or if the queue has no room.
   * @param normalised the normalised url
   * @param t when it was asked, unix ms
   * @param notBeforeMs earliest time of its probe, unix ms
   * @param client key of the client, if it is known
   */
  addAsk(cap: string, normalised: string, t: number, notBeforeMs = t, client = UNKNOWN_CLIENT): void {
    this.#addWaiting(
      cap,
      normalised,
      { askedAtMs: t, notBeforeMs, earlyByMs: MIN_PROBE_INTERVAL_MS, isRetest: false },
      client,
    );
  }

  /**
   * Adds a re-test that a seller asked for. It waits until the endpoint is probed at or after `notBeforeMs`. Parameters
   * as in {@link addAsk}.
   */
  addRetest(cap: string, normalised: string, t: number, from = t, client = UNKNOWN_CLIENT): void {
    this.#lastRetests.set(cap, t);
    this.#addWaiting(cap, normalised, { askedAtMs: t, notBeforeMs: from, earlyByMs: 0, isRetest: true }, client);
  }

  #addWaiting(
    cap: string,
    normalised: string,
    when: Omit<WaitingAsk, "queueNames" | "sequence">,
    client: string,
  ): void {
    const { askedAtMs, notBeforeMs, earlyByMs, isRetest } = when;
    if (this.#lastProbeOf(cap) >= notBeforeMs - earlyByMs) return;
    const existing = this.#waiting.get(cap);
    if (existing && existing.notBeforeMs <= notBeforeMs && existing.earlyByMs <= earlyByMs) return;
    this.#expire(askedAtMs);
    if (existing) this.#removeWaiting(cap);
    const evicted = (isRetest ? this.#retests : this.#asks).admit({ client }, cap);
    if (evicted === undefined) return;
    if (evicted !== null) this.#removeWaiting(evicted);
    const waiting = { ...when, queueNames: queueNamesOf(normalised), sequence: this.#nextSequence++ };
    for (const [i, name] of waiting.queueNames.entries()) {
      const perHour = this.limits.perDomainHour * (i === 0 ? 1 : PLATFORM_CAP_FACTOR);
      const domain = this.#domains.get(name) ?? { perHour, queue: [], probeTimes: [] };
      this.#domains.set(name, domain);
      domain.queue.splice(insertPosition(domain.queue, waiting), 0, waiting);
    }
    this.#waiting.set(cap, waiting);
  }

  /** Records a probe. The endpoint leaves the queue unless the probe is too early for its ask. @param t unix ms */
  recordProbe(cap: string, t: number): void {
    this.#lastProbes.set(cap, t);
    const waiting = this.#waiting.get(cap);
    if (!waiting || t < waiting.notBeforeMs - waiting.earlyByMs) return;
    for (const { probeTimes, perHour } of this.#removeWaiting(cap)) {
      probeTimes.push(t);
      if (probeTimes.length > perHour) probeTimes.shift();
    }
  }

  /**
   * Removes endpoints that were probed meanwhile for another reason, such as the daily plan.
   * @param newestProbeOf returns the time of an endpoint's newest probe, unix ms
   */
  dropProbed(newestProbeOf: (cap: string) => number | null): void {
    for (const [cap, { notBeforeMs, earlyByMs }] of this.#waiting) {
      if ((newestProbeOf(cap) ?? Number.NEGATIVE_INFINITY) >= notBeforeMs - earlyByMs) this.#removeWaiting(cap);
    }
  }

  /** Returns the expected wait of an ask in the queue; one hour for any other endpoint. @param now unix ms */
  waitOf(cap: string, now: number): ExpectedWait {
    const waiting = this.#waiting.get(cap);
    if (!waiting) return { hours: 1 };
    return this.#computeWait(waiting, now);
  }

  /** Returns the expected wait of an ask that would be added now. */
  waitOfNewAsk(normalised: string, from: number, now: number): ExpectedWait {
    return this.#computeWait(
      { queueNames: queueNamesOf(normalised), sequence: this.#nextSequence, notBeforeMs: from },
      now,
    );
  }

  #computeWait(waiting: Pick<WaitingAsk, "queueNames" | "sequence" | "notBeforeMs">, now: number): ExpectedWait {
    const domainHours = Math.max(
      ...waiting.queueNames.map((name) => {
        const { queue, probeTimes, perHour } = this.#domains.get(name) ?? { queue: [], probeTimes: [], perHour: 1 };
        const probedThisHour = probeTimes.filter((t) => t > now - HOUR_MS).length;
        return Math.floor((insertPosition(queue, waiting) + probedThisHour) / perHour) + 1;
      }),
    );
    const ownHours = Math.floor(Math.max(0, waiting.notBeforeMs - now) / HOUR_MS) + 1;
    const queueHours = Math.ceil(this.size / PROBES_PER_HOUR);
    const hours = Math.max(1, domainHours, ownHours, queueHours);
    if (hours === 1) return { hours };
    return { hours, by: hours === ownHours ? "moment" : hours === domainHours ? "domain" : "line" };
  }

  /** Applies one record of the topic `asks`; other records are ignored. */
  apply(record: LogRecord): void {
    const parsed = readRecord(record);
    if (!parsed.ok) return;
    const { type, observed_at, body } = parsed.envelope;
    const t = Date.parse(observed_at);
    if (type === "ask") {
      const { cap, normalised_url, not_before, retest } = body as BodyOf<"ask">;
      const notBeforeMs = not_before === undefined ? t : Math.max(t, Date.parse(not_before));
      if (retest) this.addRetest(cap, normalised_url, t, notBeforeMs);
      else this.addAsk(cap, normalised_url, t, notBeforeMs);
    } else if (type === "ask.looked") this.recordProbe((body as BodyOf<"ask.looked">).cap, t);
  }

  #lastProbeOf(cap: string): number {
    return this.#lastProbes.get(cap) ?? Number.NEGATIVE_INFINITY;
  }

  /** Removes a waiting ask. @returns the queues of its domain and its platform */
  #removeWaiting(cap: string): DomainQueue[] {
    const waiting = this.#waiting.get(cap)!;
    this.#waiting.delete(cap);
    (waiting.isRetest ? this.#retests : this.#asks).remove(cap);
    return waiting.queueNames.map((name) => {
      const domain = this.#domains.get(name)!;
      domain.queue.splice(insertPosition(domain.queue, waiting), 1);
      return domain;
    });
  }

  /**
   * Removes asks that are too old and, once there are many queues of domains, those without asks and recent probes. The
   * map of asks is in order of insertion, so the oldest come first.
   */
  #expire(now: number): void {
    for (const [cap, { askedAtMs }] of this.#waiting) {
      if (askedAtMs >= now - ASK_LIFETIME_MS) break;
      this.#removeWaiting(cap);
    }
    if (this.#domains.size <= this.limits.maxAsks * 4) return;
    for (const [name, { queue, probeTimes }] of this.#domains) {
      if (queue.length === 0 && (probeTimes.at(-1) ?? 0) <= now - HOUR_MS) this.#domains.delete(name);
    }
  }
}

/** Returns the names of a url's queues: its registrable domain, and its platform if that is another name. */
function queueNamesOf(normalised: string): string[] {
  const domain = registrableDomain(normalised);
  const platform = platformOf(normalised);
  return platform === domain ? [domain] : [domain, `all of ${platform}`];
}

/** Returns the position of an ask in a queue, which is ordered by earliest time and then by arrival. */
function insertPosition(
  queue: readonly WaitingAsk[],
  { notBeforeMs, sequence }: Pick<WaitingAsk, "notBeforeMs" | "sequence">,
): number {
  let low = 0;
  let high = queue.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const other = queue[middle]!;
    if (other.notBeforeMs < notBeforeMs || (other.notBeforeMs === notBeforeMs && other.sequence < sequence))
      low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Keeps an AskQueue up to date. */
export interface AskFollower {
  /** Reads new records now. */
  catchUp(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Follows the topic `asks` from its beginning, reading every `everyMs` (real). A read that fails is tried again next
 * time.
 */
export function followAsks(
  log: Pick<Log, "read" | "bounds" | "partitions">,
  queue: AskQueue,
  logger: Pick<Logger, "warn">,
  everyMs = 2_000,
): AskFollower {
  const tail = new LogTail(log, "asks", (record) => queue.apply(record));
  let timer: NodeJS.Timeout | null = null;
  let isStopped = false;
  let pendingRead: Promise<void> = Promise.resolve();
  const catchUp = (): Promise<void> => {
    pendingRead = tail.catchUp().catch((error: unknown) => {
      logger.warn({ err: error }, "the queue of asks could not be read; waits are computed from the last state");
    });
    return pendingRead;
  };
  const poll = async (): Promise<void> => {
    await catchUp();
    if (!isStopped) timer = setTimeout(() => void poll(), everyMs);
  };
  void poll();
  return {
    catchUp,
    async stop() {
      isStopped = true;
      tail.close();
      if (timer) clearTimeout(timer);
      await pendingRead;
    },
  };
}
