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
import { type Change, type Message, noticeOf, type WatcherType, watcherRecord } from "./notice.ts";
import { isBehind, type Line, MAX_WAITING_ALL, scan, type Watcher, WatcherTable } from "./watcher-table.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Pauses after the first, second .. failed attempt, ms (egress.md, Notices); the last one repeats. */
const PAUSES = [5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR];
/** A receiver that accepted nothing for this long gets no further notice, ms. */
export const DISABLED_AFTER = 5 * 24 * HOUR;
/** Longest pause that a receiver may ask for, ms. */
const MAX_ASKED = 24 * HOUR;
/** Up to this part of a pause is added at random, so that attempts that failed together are not repeated together. */
const JITTER = 0.1;

/**
 * When the next attempt is due, unix ms: after the schedule's pause, or later where the receiver asked for that. Never
 * later than the moment at which the receiver is given up, so that the last attempt is at that moment.
 * @param attempts number of attempts that failed
 * @param times.since first failed attempt since the last accepted notice, unix ms
 * @param asked pause that Retry-After asks for, ms, or null
 * @param random in [0, 1)
 */
export function nextAttempt(
  attempts: number,
  times: { now: number; since: number },
  asked: number | null,
  random: number,
) {
  const pause = PAUSES[Math.min(attempts, PAUSES.length) - 1]! * (1 + JITTER * random);
  const due = times.now + Math.max(pause, Math.min(asked ?? 0, MAX_ASKED));
  return Math.min(due, times.since + DISABLED_AFTER);
}

export interface NotifierParts {
  log: Pick<Log, "append" | "read" | "bounds" | "partitions">;
  tree: Pick<PublishedTree, "newest">;
  egress: Pick<Egress, "fetch">;
  signers: { cards: Signer; answers: Signer };
  clock: Clock;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Metrics;
  /** Most attempts in a minute for one receiver's registrable domain. */
  perDomainMinute: number;
  /** Folder in which the topic's fold is kept, so that a start reads only the records after it. */
  folds?: FoldFolder;
  /** Random number in [0, 1) (default Math.random). */
  random?: () => number;
}

/** Attempts at once for one registrable domain: a receiver that takes its 15 s delays at most its own domain. */
const PER_DOMAIN_AT_ONCE = 2;
const MINUTE_MS = 60_000;
/** Pause after a fault of our own (log or store), ms. It counts as no attempt. */
const OURS_MS = 5_000;
/** Pause when nothing could be sent (no place of egress, or no network), ms. It counts as no attempt. */
const NO_WAY_MS = 60_000;

type Notified = Pick<
  BodyOf<"watcher.failed">,
  "id" | "notice" | "capability_id" | "seq" | "leaf" | "change" | "attempt" | "at"
>;

interface Sending extends Line {
  busy: boolean;
  /** Nothing is sent before this time, unix ms, for a reason of our own. */
  held: number;
  /** A result that is not in the log yet. Nothing else is sent before it is. */
  unrecorded: { type: WatcherType; body: BodyOf<WatcherType> } | null;
}

/**
 * Delivers notices: each published card of a watched endpoint is posted to the watcher's receiver until a 2xx confirms
 * it, in the order of the tree, one at a time for each watcher. What has to be sent follows from tree and log alone, so
 * a process that takes over sends exactly what is not recorded as delivered. A notice whose delivery could not be
 * recorded is sent again under its id. Meant to be run by one process at a time; that saves requests, and two are safe
 * too.
 */
export class Notifier {
  readonly table = new WatcherTable();
  readonly #tail: LogTail;
  /** Queues of active watchers. One that was served goes to the end (a Map keeps its order). */
  readonly #lines = new Map<string, Sending>();
  readonly #domains = new Map<string, { running: number; begun: number[] }>();
  readonly #places = new Places({ name: "notices", size: NOTICES_AT_ONCE });
  readonly #stop = new AbortController();
  readonly #underway = new Set<Promise<void>>();
  #snapshot: Snapshot | null = null;
  #scanned = 0;

  constructor(private readonly parts: NotifierParts) {
    const { log, folds } = parts;
    const file = folds ? new FoldFile(join(folds.dir, "watchers-notifier"), this.table, folds) : null;
    this.#tail = new LogTail(log, "watchers", (record) => this.table.apply(record), file);
  }

  /**
   * Reads what is new in log and tree, and begins the attempts that are due, without waiting for them.
   * @throws what log and tree throw
   */
  async turn(): Promise<void> {
    await this.#tail.catchUp();
    this.#snapshot = (await this.parts.tree.newest()) ?? this.#snapshot;
    this.#follow();
    await this.#scan();
    this.#forgetDomains();
    this.#begin();
    this.parts.metrics.gauge("touchstone_watchers", this.table.size);
    this.parts.metrics.gauge("touchstone_notices_waiting", this.#waiting());
  }

  /** Resolves when no attempt is under way. */
  async idle(): Promise<void> {
    while (this.#underway.size > 0) await Promise.all(this.#underway);
  }

  /** Aborts the attempts under way; the next process sends them again. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error("the notifier was stopped"));
    await this.idle();
  }

  #waiting(): number {
    let waiting = 0;
    for (const line of this.#lines.values()) waiting += line.waiting.length;
    return waiting;
  }

  /** Adds queues for new watchers, removes those of ended ones, and drops notices that another process delivered. */
  #follow(): void {
    for (const [id, line] of this.#lines) {
      if (line.watcher.state !== "active" && !line.busy) this.#lines.delete(id);
      else dropDone(line);
    }
    for (const watcher of this.table.active()) {
      if (this.#lines.has(watcher.id)) continue;
      const nothing = { waiting: [], corrected: new Set<string>(), busy: false, held: 0, unrecorded: null };
      this.#lines.set(watcher.id, { watcher, seen: watcher.next, ...nothing });
    }
  }

  /**
   * Scans leaves: first for queues that are behind (new ones, and full ones with room again), then new leaves for all.
   */
  async #scan(): Promise<void> {
    if (!this.#snapshot) return;
    const { reader, head } = this.#snapshot;
    const room = { all: MAX_WAITING_ALL - this.#waiting() };
    const behind = [...this.#lines.values()].filter((line) => isBehind(line, this.#scanned));
    if (behind.length > 0) {
      const from = Math.min(...behind.map(({ seen }) => seen));
      await scan(behind, reader.leaves(from, this.#scanned), this.#scanned, room);
    }
    const lines = [...this.#lines.values()].filter(({ seen }) => seen >= this.#scanned);
    // No watcher needs the leaves before the first one's beginning.
    const from = Math.min(head.size, ...lines.map(({ seen }) => seen));
    await scan(lines, reader.leaves(from, head.size), head.size, room);
    this.#scanned = Math.max(this.#scanned, head.size);
  }

  #begin(): void {
    if (this.#stop.signal.aborted) return;
    const { clock, perDomainMinute } = this.parts;
    const now = clock.now().getTime();
    for (const [id, line] of [...this.#lines]) {
      if (this.#places.taken >= NOTICES_AT_ONCE) return;
      if (line.busy || !isDue(line, now)) continue;
      const { domain: name, platform, by } = line.watcher;
      const domain = this.#domain(name);
      const under = this.#domain(`all of ${platform}`);
      if (domain.running >= PER_DOMAIN_AT_ONCE || domain.begun.length >= perDomainMinute) continue;
      if (under.begun.length >= PLATFORM_CAP_FACTOR * perDomainMinute) continue;
      const place = this.#places.tryTake({ client: by ?? undefined, domain: platform });
      if (!place) continue;
      this.#lines.delete(id);
      this.#lines.set(id, line);
      domain.running++;
      for (const one of [domain, under]) one.begun.push(clock.monotonic());
      line.busy = true;
      const work = this.#attempt(line).finally(() => {
        domain.running--;
        place.leave();
        line.busy = false;
        this.#underway.delete(work);
        this.#begin();
      });
      this.#underway.add(work);
    }
  }

  /** The attempts of a domain in the last minute. */
  #domain(name: string): { running: number; begun: number[] } {
    const from = this.parts.clock.monotonic() - MINUTE_MS;
    const domain = this.#domains.get(name) ?? { running: 0, begun: [] };
    while (domain.begun.length > 0 && domain.begun[0]! <= from) domain.begun.shift();
    this.#domains.set(name, domain);
    return domain;
  }

  #forgetDomains(): void {
    for (const name of this.#domains.keys()) {
      const { running, begun } = this.#domain(name);
      if (running === 0 && begun.length === 0) this.#domains.delete(name);
    }
  }

  /**
   * Makes and records one attempt for the first notice of a queue. Faults of our own are logged, and it is tried again.
   */
  async #attempt(line: Sending): Promise<void> {
    const { logger, clock } = this.parts;
    try {
      if (line.unrecorded) await this.#record(line, line.unrecorded.type, line.unrecorded.body);
      // When a stop was confirmed to the client, it is in the log: nothing may be sent after it.
      await this.#tail.catchUp(line.watcher.partition);
      dropDone(line);
      const change = line.waiting[0];
      if (line.watcher.state !== "active" || !change || !isDue(line, clock.now().getTime())) return;
      const message = await this.#message(line.watcher, change);
      const result = await this.parts.egress.fetch({
        ...{ url: line.watcher.url, method: "POST", headers: message.headers, body: message.body },
        ...{ profile: "notice", signal: this.#stop.signal },
      });
      await this.#done(line, change, message.id, result);
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      line.held = clock.now().getTime() + OURS_MS;
      logger.warn(
        { err: error, watcher: line.watcher.id },
        "a notice could not be sent or recorded; it is tried again",
      );
    }
  }

  async #message(watcher: Watcher, change: Change): Promise<Message> {
    for await (const { leaf } of this.#snapshot!.reader.leaves(change.leaf, change.leaf + 1)) {
      if (leaf.kind !== "grade") break;
      const { asked } = watcher.watched.find((one) => one.capability_ids.includes(change.capability))!;
      const { id, hmacKey } = watcher;
      const parts = { watcher: id, hmacKey, change, card: leaf.card, asked, published: leaf.at };
      return noticeOf(parts, this.parts.clock.now(), this.parts.signers);
    }
    throw new Error(`leaf ${change.leaf} is no card`);
  }

  async #done(line: Sending, change: Change, id: string, result: EgressResult): Promise<void> {
    const { clock, metrics } = this.parts;
    // It was aborted, or we could not even try: this is not recorded as a failure of the receiver.
    if (result.outcome !== "answered" && this.#stop.signal.aborted) return;
    if (result.outcome === "refused" && result.reason === undefined) {
      line.held = clock.now().getTime() + NO_WAY_MS;
      return;
    }
    const at = rfc3339(clock.now());
    const answered = result.outcome === "answered" ? result.status : null;
    const { watcher } = line;
    const notified: Notified = {
      ...{ id: watcher.id, notice: id, capability_id: change.capability, seq: change.seq, leaf: change.leaf },
      ...{ change: change.change, attempt: (watcher.failing?.attempts ?? 0) + 1, at },
    };
    if (answered !== null && answered >= 200 && answered < 300) {
      metrics.count("touchstone_notices_total", { result: "delivered" });
      return this.#record(line, "watcher.delivered", { ...notified, status: answered, to: change.to });
    }
    metrics.count("touchstone_notices_total", { result: "failed" });
    if (answered === 410) return this.#record(line, "watcher.stopped", { id: watcher.id, why: "gone", at });
    await this.#failed(line, notified, result);
  }

  async #failed(line: Sending, notified: Notified, result: EgressResult): Promise<void> {
    const { clock, random = Math.random } = this.parts;
    const now = clock.now().getTime();
    const since = Date.parse(line.watcher.failing?.since ?? notified.at);
    const says = (result.outcome === "answered" ? `answered ${result.status}` : result.says).slice(0, 300);
    const asked = retryAfterMs(result.headers?.["retry-after"], now);
    const due = nextAttempt(notified.attempt, { now, since }, asked, random());
    const status = result.status ?? null;
    const retry_at = rfc3339(new Date(due));
    await this.#record(line, "watcher.failed", { ...notified, status, says, retry_at });
    if (now < since + DISABLED_AFTER) return;
    const at = notified.at;
    await this.#record(line, "watcher.disabled", { id: line.watcher.id, since: rfc3339(new Date(since)), says, at });
  }

  /** Appends a record and reads it back. Until that has succeeded it is kept in `unrecorded`. */
  async #record<T extends WatcherType>(line: Sending, type: T, body: BodyOf<T>): Promise<void> {
    line.unrecorded = { type, body };
    const { log, clock } = this.parts;
    const [at] = await log.append([
      watcherRecord(type, body, { now: clock.now(), producer: "notifier" }, log.partitions),
    ]);
    line.unrecorded = null;
    await this.#tail.reach(at!.partition, at!.offset, OURS_MS);
    dropDone(line);
  }
}

function isDue({ watcher, waiting, held, unrecorded }: Sending, now: number): boolean {
  if (held > now) return false;
  if (unrecorded) return true;
  const head = waiting[0];
  if (watcher.state !== "active" || !head) return false;
  return watcher.failing?.leaf !== head.leaf || Date.parse(watcher.failing.retryAt) <= now;
}

/** Drops notices that were delivered by any process, or whose watcher has ended. */
function dropDone({ watcher, waiting }: Line): void {
  const done = watcher.state === "active" ? waiting.findIndex(({ leaf }) => leaf >= watcher.next) : -1;
  waiting.splice(0, done < 0 ? waiting.length : done);
}
