import { join } from "node:path";
import type { Clock } from "../../infra/clock.ts";
import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import { retryAfterMs } from "../../infra/egress/headers.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { FoldFile, type FoldFolder } from "../../infra/log/fold-file.ts";
import type { Log } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { Places } from "../../infra/shares.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { NOTICES_AT_ONCE } from "../1-observe/queue.ts";
import type { PublishedTree, Snapshot } from "../published/reader.ts";
import type { BodyOf } from "../record/bodies.ts";
import { rfc3339 } from "../record/time.ts";
import { PLATFORM_CAP_FACTOR } from "../record/url.ts";
import { type Change, createNotice, createWatcherRecord, type Message, type WatcherType } from "./notice.ts";
import {
  firstLeafToScan,
  isBehind,
  MAX_WAITING_ALL,
  type NoticeQueue,
  scanLeaves,
  type Watcher,
  WatcherTable,
} from "./watcher-table.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/**
 * Pauses after the first, second and each further failed attempt, ms (egress.md, Notices). The last pause is repeated.
 */
const RETRY_PAUSES_MS = [
  5 * SECOND_MS,
  5 * MINUTE_MS,
  30 * MINUTE_MS,
  2 * HOUR_MS,
  5 * HOUR_MS,
  10 * HOUR_MS,
  10 * HOUR_MS,
];
/** Time for which all attempts to a receiver must have failed until it gets no further notice, ms. */
export const DISABLED_AFTER_MS = 5 * 24 * HOUR_MS;
/** Longest pause that a receiver may request, ms. */
const MAX_RETRY_AFTER_MS = 24 * HOUR_MS;
/**
 * Up to this fraction of a pause is added at random, so that attempts that failed together are not repeated at the
 * same moment.
 */
const MAX_JITTER = 0.1;

/**
 * Computes when the next attempt is due, unix ms: after the schedule's pause, or later if the receiver requested a
 * longer one. It is never later than the time at which the receiver is disabled, so that a last attempt is made then.
 * @param attempts number of attempts that failed
 * @param times.since time of the first failed attempt since the last accepted notice, unix ms
 * @param requestedPauseMs pause that header Retry-After requests, ms, or null
 * @param random in [0, 1)
 */
export function nextAttemptAt(
  attempts: number,
  times: { now: number; since: number },
  requestedPauseMs: number | null,
  random: number,
) {
  const pauseMs = RETRY_PAUSES_MS[Math.min(attempts, RETRY_PAUSES_MS.length) - 1]! * (1 + MAX_JITTER * random);
  const dueMs = times.now + Math.max(pauseMs, Math.min(requestedPauseMs ?? 0, MAX_RETRY_AFTER_MS));
  return Math.min(dueMs, times.since + DISABLED_AFTER_MS);
}

export interface NotifierParts {
  log: Pick<Log, "append" | "read" | "bounds" | "partitions">;
  tree: Pick<PublishedTree, "newest">;
  egress: Pick<Egress, "fetch">;
  signers: { cards: Signer; answers: Signer };
  clock: Clock;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Metrics;
  /** Largest number of attempts per minute to receivers under one registrable domain. */
  perDomainMinute: number;
  /**
   * Folder in which the watcher table is saved, so that after a start only later records of the topic have to be read.
   */
  folds?: FoldFolder;
  /** Random number in [0, 1) (default Math.random). */
  random?: () => number;
}

/**
 * Largest number of simultaneous attempts to one registrable domain, so that a receiver that takes the full 15 s delays
 * only the notices to its own domain.
 */
const MAX_ATTEMPTS_PER_DOMAIN = 2;
/** Pause after an error of our own log or store, ms. Such an error does not count as an attempt. */
const OWN_FAULT_PAUSE_MS = 5_000;
/** Pause after nothing could be sent (no free connection, or no network), ms. This does not count as an attempt. */
const NO_EGRESS_PAUSE_MS = 60_000;

type NoticeMembers = Pick<
  BodyOf<"watcher.failed">,
  "id" | "notice" | "capability_id" | "seq" | "leaf" | "change" | "attempt" | "at"
>;

/** The queue of one watcher, with the state of sending its notices. */
interface SendingQueue extends NoticeQueue {
  /** Is an attempt to send its first notice running? */
  isBusy: boolean;
  /** Nothing is sent before this time, unix ms, because of an error on our side. */
  pausedUntil: number;
  /** The result of an attempt, until it is in the log. Until then no further notice is sent. */
  unrecorded: { type: WatcherType; body: BodyOf<WatcherType> } | null;
}

/**
 * Delivers notices. Each published card of a watched endpoint is posted to the watcher's receiver until a 2xx status
 * confirms it, in the order of the tree, one at a time for each watcher. Tree and event log alone determine what has
 * to be sent, so a process that takes over sends exactly what is not recorded as delivered. A notice whose delivery
 * could not be recorded is sent again under its old id. Only one process at a time should run this; two are safe, but
 * send some notices twice.
 */
export class Notifier {
  readonly table = new WatcherTable();
  /** Reads the records of the topic `watchers` into the table. */
  readonly #tail: LogTail;
  /**
   * Queues of active watchers. When an attempt starts, its queue moves to the end, since a Map keeps the order of
   * insertion.
   */
  readonly #queues = new Map<string, SendingQueue>();
  /**
   * Attempts by registrable domain, and by platform under the name `all of <platform>`. `startTimes`: those of the last
   * minute, ms of the monotonic clock; `running` is counted for domains only.
   */
  readonly #domainAttempts = new Map<string, { running: number; startTimes: number[] }>();
  readonly #places = new Places({ name: "notices", size: NOTICES_AT_ONCE });
  readonly #stopController = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #snapshot: Snapshot | null = null;
  /** Leaves below this position were scanned for all queues that had room. */
  #scannedTo = 0;

  constructor(private readonly parts: NotifierParts) {
    const { log, folds } = parts;
    const file = folds ? new FoldFile(join(folds.dir, "watchers-notifier"), this.table, folds) : null;
    this.#tail = new LogTail(log, "watchers", (record) => this.table.apply(record), file);
  }

  /**
   * Reads new records of the log and new leaves of the tree, and starts the attempts that are due, without waiting
   * for them to end.
   * @throws errors of log and tree
   */
  async runOnce(): Promise<void> {
    await this.#tail.catchUp();
    this.#snapshot = (await this.parts.tree.newest()) ?? this.#snapshot;
    this.#syncQueues();
    await this.#scan();
    this.#forgetDomains();
    this.#startAttempts();
    this.parts.metrics.gauge("touchstone_watchers", this.table.size);
    this.parts.metrics.gauge("touchstone_notices_waiting", this.#countWaiting());
  }

  /** Resolves when no attempt is running. */
  async waitUntilIdle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  /** Aborts the running attempts. The process that takes over sends their notices again. */
  async stop(): Promise<void> {
    this.#stopController.abort(new Error("the notifier was stopped"));
    await this.waitUntilIdle();
  }

  #countWaiting(): number {
    let waiting = 0;
    for (const queue of this.#queues.values()) waiting += queue.waiting.length;
    return waiting;
  }

  /**
   * Adds queues for new watchers, removes the queues of ended watchers, and drops notices that another process has
   * delivered.
   */
  #syncQueues(): void {
    for (const [id, queue] of this.#queues) {
      if (queue.watcher.state !== "active" && !queue.isBusy) this.#queues.delete(id);
      else dropDelivered(queue);
    }
    for (const watcher of this.table.activeWatchers()) {
      if (this.#queues.has(watcher.id)) continue;
      const emptyState = { waiting: [], corrected: new Set<string>(), isBusy: false, pausedUntil: 0, unrecorded: null };
      this.#queues.set(watcher.id, { watcher, scannedTo: firstLeafToScan(watcher), ...emptyState });
    }
  }

  /**
   * Scans leaves for notices: first older leaves for queues that are behind (new queues, and full queues that have
   * room again), then new leaves for all other queues.
   */
  async #scan(): Promise<void> {
    if (!this.#snapshot) return;
    const { reader, head } = this.#snapshot;
    const room = { notices: MAX_WAITING_ALL - this.#countWaiting() };
    const queuesBehind = [...this.#queues.values()].filter((queue) => isBehind(queue, this.#scannedTo));
    if (queuesBehind.length > 0) {
      const firstLeaf = Math.min(...queuesBehind.map(({ scannedTo }) => scannedTo));
      await scanLeaves(queuesBehind, reader.leaves(firstLeaf, this.#scannedTo), this.#scannedTo, room);
    }
    const queues = [...this.#queues.values()].filter(({ scannedTo }) => scannedTo >= this.#scannedTo);
    // Leaves before the lowest `scannedTo` of these queues need not be read.
    const firstLeaf = Math.min(head.size, ...queues.map(({ scannedTo }) => scannedTo));
    await scanLeaves(queues, reader.leaves(firstLeaf, head.size), head.size, room);
    this.#scannedTo = Math.max(this.#scannedTo, head.size);
  }

  #startAttempts(): void {
    if (this.#stopController.signal.aborted) return;
    const { clock, perDomainMinute } = this.parts;
    const now = clock.now().getTime();
    for (const [id, queue] of [...this.#queues]) {
      if (this.#places.takenCount >= NOTICES_AT_ONCE) return;
      if (queue.isBusy || !isDue(queue, now)) continue;
      const { domain: name, platform, by } = queue.watcher;
      const domainAttempts = this.#recentAttempts(name);
      const platformAttempts = this.#recentAttempts(`all of ${platform}`);
      if (domainAttempts.running >= MAX_ATTEMPTS_PER_DOMAIN || domainAttempts.startTimes.length >= perDomainMinute)
        continue;
      if (platformAttempts.startTimes.length >= PLATFORM_CAP_FACTOR * perDomainMinute) continue;
      const place = this.#places.tryTake({ client: by ?? undefined, domain: platform });
      if (!place) continue;
      this.#queues.delete(id);
      this.#queues.set(id, queue);
      domainAttempts.running++;
      for (const one of [domainAttempts, platformAttempts]) one.startTimes.push(clock.monotonic());
      queue.isBusy = true;
      const work = this.#sendFirst(queue).finally(() => {
        domainAttempts.running--;
        place.leave();
        queue.isBusy = false;
        this.#running.delete(work);
        this.#startAttempts();
      });
      this.#running.add(work);
    }
  }

  /** Returns the entry of `#domainAttempts` with this name, without start times of more than a minute ago. */
  #recentAttempts(name: string): { running: number; startTimes: number[] } {
    const oneMinuteAgo = this.parts.clock.monotonic() - MINUTE_MS;
    const domain = this.#domainAttempts.get(name) ?? { running: 0, startTimes: [] };
    while (domain.startTimes.length > 0 && domain.startTimes[0]! <= oneMinuteAgo) domain.startTimes.shift();
    this.#domainAttempts.set(name, domain);
    return domain;
  }

  #forgetDomains(): void {
    for (const name of this.#domainAttempts.keys()) {
      const { running, startTimes } = this.#recentAttempts(name);
      if (running === 0 && startTimes.length === 0) this.#domainAttempts.delete(name);
    }
  }

  /**
   * Sends the first notice of a queue once and records the result. After an error of our own log or store, which is
   * logged, the attempt is repeated later.
   */
  async #sendFirst(queue: SendingQueue): Promise<void> {
    const { logger, clock } = this.parts;
    try {
      if (queue.unrecorded) await this.#record(queue, queue.unrecorded.type, queue.unrecorded.body);
      // A client that stops a watcher gets its answer after the stop is in the log. Read the log now, since nothing
      // may be sent after that.
      await this.#tail.catchUp(queue.watcher.partition);
      dropDelivered(queue);
      const change = queue.waiting[0];
      if (queue.watcher.state !== "active" || !change || !isDue(queue, clock.now().getTime())) return;
      const message = await this.#createMessage(queue.watcher, change);
      const result = await this.parts.egress.fetch({
        ...{ url: queue.watcher.url, method: "POST", headers: message.headers, body: message.body },
        ...{ profile: "notice", signal: this.#stopController.signal },
      });
      await this.#recordResult(queue, change, message.id, result);
    } catch (error) {
      if (this.#stopController.signal.aborted) return;
      queue.pausedUntil = clock.now().getTime() + OWN_FAULT_PAUSE_MS;
      logger.warn(
        { err: error, watcher: queue.watcher.id },
        "a notice could not be sent or recorded; it is tried again",
      );
    }
  }

  async #createMessage(watcher: Watcher, change: Change): Promise<Message> {
    for await (const { leaf } of this.#snapshot!.reader.leaves(change.leaf, change.leaf + 1)) {
      if (leaf.kind !== "grade") break;
      const { asked } = watcher.watched.find((one) => one.capability_ids.includes(change.capability))!;
      const { id, hmacKey } = watcher;
      const parts = { watcher: id, hmacKey, change, card: leaf.card, asked, published: leaf.at };
      return createNotice(parts, this.parts.clock.now(), this.parts.signers);
    }
    throw new Error(`leaf ${change.leaf} is no card`);
  }

  async #recordResult(queue: SendingQueue, change: Change, id: string, result: EgressResult): Promise<void> {
    const { clock, metrics } = this.parts;
    // The attempt was aborted, or could not be made at all. Neither is recorded as a failure of the receiver.
    if (result.outcome !== "answered" && this.#stopController.signal.aborted) return;
    if (result.outcome === "refused" && result.reason === undefined) {
      queue.pausedUntil = clock.now().getTime() + NO_EGRESS_PAUSE_MS;
      return;
    }
    const at = rfc3339(clock.now());
    const answerStatus = result.outcome === "answered" ? result.status : null;
    const { watcher } = queue;
    const noticeMembers: NoticeMembers = {
      ...{ id: watcher.id, notice: id, capability_id: change.capability, seq: change.seq, leaf: change.leaf },
      ...{ change: change.change, attempt: (watcher.failing?.attempts ?? 0) + 1, at },
    };
    if (answerStatus !== null && answerStatus >= 200 && answerStatus < 300) {
      metrics.count("touchstone_notices_total", { result: "delivered" });
      return this.#record(queue, "watcher.delivered", { ...noticeMembers, status: answerStatus, to: change.to });
    }
    metrics.count("touchstone_notices_total", { result: "failed" });
    if (answerStatus === 410) return this.#record(queue, "watcher.stopped", { id: watcher.id, why: "gone", at });
    await this.#recordFailure(queue, noticeMembers, result);
  }

  async #recordFailure(queue: SendingQueue, noticeMembers: NoticeMembers, result: EgressResult): Promise<void> {
    const { clock, random = Math.random } = this.parts;
    const now = clock.now().getTime();
    const failingSinceMs = Date.parse(queue.watcher.failing?.since ?? noticeMembers.at);
    const says = (result.outcome === "answered" ? `answered ${result.status}` : result.says).slice(0, 300);
    const requestedPauseMs = retryAfterMs(result.headers?.["retry-after"], now);
    const dueMs = nextAttemptAt(noticeMembers.attempt, { now, since: failingSinceMs }, requestedPauseMs, random());
    const status = result.status ?? null;
    const retry_at = rfc3339(new Date(dueMs));
    await this.#record(queue, "watcher.failed", { ...noticeMembers, status, says, retry_at });
    if (now < failingSinceMs + DISABLED_AFTER_MS) return;
    const at = noticeMembers.at;
    await this.#record(queue, "watcher.disabled", {
      id: queue.watcher.id,
      since: rfc3339(new Date(failingSinceMs)),
      says,
      at,
    });
  }

  /**
   * Appends a record and waits until the watcher table has read it. The record is in `unrecorded` until it is appended.
   */
  async #record<T extends WatcherType>(queue: SendingQueue, type: T, body: BodyOf<T>): Promise<void> {
    queue.unrecorded = { type, body };
    const { log, clock } = this.parts;
    const [position] = await log.append([
      createWatcherRecord(type, body, { now: clock.now(), producer: "notifier" }, log.partitions),
    ]);
    queue.unrecorded = null;
    await this.#tail.reach(position!.partition, position!.offset, OWN_FAULT_PAUSE_MS);
    dropDelivered(queue);
  }
}

function isDue({ watcher, waiting, pausedUntil, unrecorded }: SendingQueue, now: number): boolean {
  if (pausedUntil > now) return false;
  if (unrecorded) return true;
  const firstNotice = waiting[0];
  if (watcher.state !== "active" || !firstNotice) return false;
  return watcher.failing?.leaf !== firstNotice.leaf || Date.parse(watcher.failing.retryAt) <= now;
}

/** Drops the notices that this or another process has delivered, and all notices of a watcher that has ended. */
function dropDelivered({ watcher, waiting }: NoticeQueue): void {
  const firstUndelivered = watcher.state === "active" ? waiting.findIndex(({ leaf }) => leaf >= watcher.next) : -1;
  waiting.splice(0, firstUndelivered < 0 ? waiting.length : firstUndelivered);
}
