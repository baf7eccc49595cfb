import type { StoredFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { FairQueue, type Holder } from "../../infra/shares.ts";
import type { ReadLeaf } from "../published/reader.ts";
import type { BodyOf, Standing } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import type { GradeLeaf } from "../record/leaf.ts";
import { DAY_MS, rfc3339 } from "../record/time.ts";
import { platformOf, registrableDomain } from "../record/url.ts";
import { type Change, classifyChange, comparedMembers } from "./notice.ts";

/** Number of newest attempts that are kept for each watcher. */
const MAX_RECENT_ATTEMPTS = 20;
/**
 * Largest number of ended watchers that are kept, so that clients can still read why they ended. Those that ended first
 * are dropped first.
 */
const MAX_ENDED = 10_000;

/** What was delivered to a watcher about one endpoint. */
export interface WatchedCap {
  /** `seq` of the last delivered notice, 0 before the first. */
  seq: number;
  /**
   * The compared members of the card in the last delivered notice; before the first notice, those of the endpoint's
   * card when the watcher was created, or null if it had none.
   */
  standing: Standing | null;
  /**
   * Position in the tree from which corrections of this endpoint are newer than the card in the last delivered notice;
   * before the first notice, newer than the watcher.
   */
  correctedFrom: number;
}

export type Attempt = BodyOf<"watcher.delivered"> | BodyOf<"watcher.failed">;
export const isDelivered = (attempt: Attempt): attempt is BodyOf<"watcher.delivered"> => "to" in attempt;

/** The failed attempts since the last delivered notice. All of them were for one notice, the first of the queue. */
export interface FailureStreak {
  /** Position of the leaf of that notice. */
  leaf: number;
  /** When the first of these attempts failed, and when the next is due, RFC 3339. */
  since: string;
  attempts: number;
  retryAt: string;
  /** How the last attempt failed, in words. */
  says: string;
}

export interface Watcher {
  readonly id: string;
  readonly url: string;
  /**
   * Registrable domain of the receiver, and the hosting platform under which it lies (`vercel.app`). The number of
   * watchers for each is limited.
   */
  readonly domain: string;
  readonly platform: string;
  /** Opaque name of the IP network of the client that created the watcher; null in old records. */
  readonly by: string | null;
  /** When the last notice was accepted, or when the watcher was created if none was. */
  usedAt: string;
  /** The urls and ids as its creator wrote them, with the capability ids that they mean. */
  readonly watched: BodyOf<"watcher.created">["watched"];
  /** State of each watched endpoint, by capability id. */
  readonly caps: Map<string, WatchedCap>;
  readonly tokenSha256: string;
  /** Base64; null if the watcher's creator gave no key. */
  readonly hmacKey: string | null;
  readonly createdAt: string;
  /** Partition of the log that has the watcher's records. */
  readonly partition: number;
  /** Every notice of a leaf below this position was delivered. */
  next: number;
  state: "active" | "stopped" | "disabled";
  /** Why the watcher ended, in words; null while it is active. */
  why: string | null;
  endedAt: string | null;
  failing: FailureStreak | null;
  /** The newest attempts, newest first. */
  late: Attempt[];
}

type StoredItem = { watcher: Omit<Watcher, "caps"> & { caps: [string, WatchedCap][] } } | { ended: string[] };

const STOP_REASONS = {
  asked: "stopped with its token",
  gone: "the receiver answered 410 Gone",
  unused: "no notice was accepted for 90 days, and others needed the room; make a new one",
  share: "others needed the room, and whoever made it, or its receiver's platform, had most; make a new one later",
};

/**
 * Time without an accepted notice, ms, after which a watcher counts as unused. When the table is full, unused watchers
 * are ended before all others.
 */
const UNUSED_MS = 90 * DAY_MS;

/**
 * The parties between which the room for watchers is shared: the IP network whose client created the watcher, and the
 * receiver's platform.
 */
const holderOf = ({ by, platform }: Pick<Watcher, "by" | "platform">): Holder => ({
  client: by ?? undefined,
  domain: platform,
});

/**
 * All watchers, built from the records of topic `watchers`. The serving replicas and the process that delivers
 * notices use it. Applying a record a second time changes nothing. It does not limit the number of watchers; the code
 * that creates watchers does.
 */
export class WatcherTable implements StoredFold {
  readonly form = "watchers.4";
  readonly #watchers = new Map<string, Watcher>();
  /** Number of active watchers by registrable domain, and by platform under the name `all of <platform>`. */
  readonly #activeByDomain = new Map<string, number>();
  /** Ids of the ended watchers that are kept, in the order in which they ended. */
  readonly #ended = new Set<string>();

  get(id: string): Watcher | undefined {
    return this.#watchers.get(id);
  }

  /** Active watchers, in the order in which they were created. */
  *activeWatchers(): Generator<Watcher> {
    for (const watcher of this.#watchers.values()) if (watcher.state === "active") yield watcher;
  }

  /** Number of active watchers. */
  get size(): number {
    return this.#watchers.size - this.#ended.size;
  }

  /** Number of active watchers with a receiver under this registrable domain. */
  countForDomain(domain: string): number {
    return this.#activeByDomain.get(domain) ?? 0;
  }

  /** Number of active watchers with a receiver under this platform. */
  countForPlatform(platform: string): number {
    return this.#activeByDomain.get(`all of ${platform}`) ?? 0;
  }

  /**
   * Finds the watcher that has to be ended to make room for a new one when at most `maxActive` may be active: the
   * watcher that was unused for the longest time, if that is over {@link UNUSED_MS}, else the newest watcher of the
   * party with the most watchers.
   * @returns null if there is room; undefined if no watcher may be ended
   */
  findEvictable(maxActive: number, newWatcher: Pick<Watcher, "by" | "platform">, now: Date) {
    if (this.size < maxActive) return null;
    const unusedBefore = rfc3339(new Date(now.getTime() - UNUSED_MS));
    const queue = new FairQueue<Watcher>({ name: "watchers", size: this.size });
    let longestUnused: Watcher | null = null;
    for (const watcher of this.activeWatchers()) {
      queue.admit(holderOf(watcher), watcher);
      if (watcher.usedAt < (longestUnused?.usedAt ?? unusedBefore)) longestUnused = watcher;
    }
    if (longestUnused) return { watcher: longestUnused, why: "unused" as const };
    const watcher = queue.wouldEvict(holderOf(newWatcher));
    return watcher ? { watcher, why: "share" as const } : undefined;
  }

  #addToCounts({ domain, platform }: Watcher, change: 1 | -1): void {
    for (const name of [domain, `all of ${platform}`]) {
      const count = (this.#activeByDomain.get(name) ?? 0) + change;
      if (count > 0) this.#activeByDomain.set(name, count);
      else this.#activeByDomain.delete(name);
    }
  }

  *kept(): Generator<StoredItem> {
    for (const watcher of this.#watchers.values()) yield { watcher: { ...watcher, caps: [...watcher.caps] } };
    yield { ended: [...this.#ended] };
  }

  restore(value: unknown): void {
    const kept = value as StoredItem;
    if ("ended" in kept) {
      for (const id of kept.ended) this.#ended.add(id);
      return;
    }
    const watcher: Watcher = { ...kept.watcher, caps: new Map(kept.watcher.caps) };
    this.#watchers.set(watcher.id, watcher);
    if (watcher.state === "active") this.#addToCounts(watcher, 1);
  }

  clear(): void {
    for (const collection of [this.#watchers, this.#activeByDomain, this.#ended]) collection.clear();
  }

  /** Applies a record of the topic. A malformed record is skipped. */
  apply(record: LogRecord): void {
    const parsed = readRecord(record);
    if (!parsed.ok) return;
    const { type, body } = parsed.envelope;
    if (type === "watcher.created") this.#applyCreated(body as BodyOf<"watcher.created">, record.partition);
    if (!type.startsWith("watcher.")) return;
    const watcher = this.#watchers.get((body as { id: string }).id);
    // A request may be running when its watcher ends, so its delivery is recorded afterwards. The receiver got the
    // notice, so it counts.
    if (watcher && type === "watcher.delivered") applyDelivered(watcher, body as BodyOf<"watcher.delivered">);
    if (watcher?.state !== "active") return;
    if (type === "watcher.failed") applyFailed(watcher, body as BodyOf<"watcher.failed">);
    if (type === "watcher.stopped") {
      const { why, at } = body as BodyOf<"watcher.stopped">;
      this.#end(watcher, "stopped", STOP_REASONS[why], at);
    }
    if (type === "watcher.disabled") {
      const { since, says, at } = body as BodyOf<"watcher.disabled">;
      this.#end(watcher, "disabled", `no notice was accepted since ${since}; at last: ${says}`, at);
    }
  }

  #applyCreated(body: BodyOf<"watcher.created">, partition: number): void {
    if (this.#watchers.has(body.id)) return;
    const standing = new Map(body.standing.map(({ capability_id, ...card }) => [capability_id, card]));
    const ids = body.watched.flatMap(({ capability_ids }) => capability_ids);
    const { url, by = null } = body;
    const watcher: Watcher = {
      ...{ id: body.id, url, domain: registrableDomain(url), platform: platformOf(url), by, partition },
      ...{ watched: body.watched, usedAt: body.created_at },
      hmacKey: body.hmac_key ?? null,
      ...{ tokenSha256: body.token_sha256, createdAt: body.created_at, next: body.tree_size },
      caps: new Map(
        ids.map((cap) => [cap, { seq: 0, standing: standing.get(cap) ?? null, correctedFrom: body.tree_size }]),
      ),
      ...{ state: "active", why: null, endedAt: null, failing: null, late: [] },
    };
    this.#watchers.set(body.id, watcher);
    this.#addToCounts(watcher, 1);
  }

  #end(watcher: Watcher, state: "stopped" | "disabled", why: string, at: string): void {
    Object.assign(watcher, { state, why, endedAt: at });
    this.#addToCounts(watcher, -1);
    this.#ended.add(watcher.id);
    if (this.#ended.size <= MAX_ENDED) return;
    const [oldest] = this.#ended;
    this.#ended.delete(oldest!);
    this.#watchers.delete(oldest!);
  }
}

/**
 * Applies a delivery. Notices are delivered in the order of their leaves, so a record with a leaf below `next` was
 * applied before and is skipped.
 */
function applyDelivered(watcher: Watcher, body: BodyOf<"watcher.delivered">): void {
  if (body.leaf < watcher.next) return;
  watcher.next = body.leaf + 1;
  watcher.failing = null;
  watcher.usedAt = body.at;
  watcher.caps.set(body.capability_id, { seq: body.seq, standing: body.to, correctedFrom: body.leaf + 1 });
  addRecentAttempt(watcher, body);
}

function applyFailed(watcher: Watcher, body: BodyOf<"watcher.failed">): void {
  const { leaf, attempt, says } = body;
  if (leaf < watcher.next) return;
  // Two processes may both have sent the notice. An attempt with a number that was already counted is skipped.
  if (watcher.failing?.leaf === leaf && attempt <= watcher.failing.attempts) return;
  watcher.failing = {
    ...{ leaf, says, attempts: attempt, retryAt: body.retry_at },
    since: watcher.failing?.since ?? body.at,
  };
  addRecentAttempt(watcher, body);
}

function addRecentAttempt(watcher: Watcher, attempt: Attempt): void {
  watcher.late = [attempt, ...watcher.late.slice(0, MAX_RECENT_ATTEMPTS - 1)];
}

/**
 * Largest number of waiting notices of one watcher in memory. Further notices are read from the tree after these are
 * delivered.
 */
const MAX_WAITING = 200;
/**
 * Largest number of waiting notices of all watchers in memory. A queue that is empty may always add one, so that dead
 * receivers, whose queues stay full, never block other watchers.
 */
export const MAX_WAITING_ALL = 50_000;

/** The notices to send to one watcher, in the order of their leaves. */
export interface NoticeQueue {
  readonly watcher: Watcher;
  readonly waiting: Change[];
  /** Leaves below this position were scanned for this watcher: their notices are delivered or wait in the queue. */
  scannedTo: number;
  /**
   * Watched endpoints of which a correction, or the withdrawal of one, was published after the card that was scanned
   * last.
   */
  readonly corrected: Set<string>;
}

/** Number of notices that may still be added in memory, over all queues. */
interface MemoryRoom {
  notices: number;
}

/**
 * Returns where the scan of a new queue begins: at the oldest leaf with a correction that a notice may have to name. An
 * endpoint's correction may be older than the last notice of another one.
 */
export function firstLeafToScan({ next, caps }: Watcher): number {
  let first = next;
  for (const { correctedFrom } of caps.values()) first = Math.min(first, correctedFrom);
  return first;
}

/**
 * Returns whether this queue has room and lacks leaves that were already scanned for other queues.
 * @param scannedTo position below which leaves were scanned for other queues
 */
export const isBehind = ({ scannedTo: seen, waiting }: NoticeQueue, scannedTo: number): boolean =>
  seen < scannedTo && waiting.length <= MAX_WAITING / 2;

/**
 * Scans leaves up to position `end` for these queues, and adds a notice for each headline (main) card of a watched
 * endpoint. For a queue that is full, scanning stops at the first leaf for which it has no room; a later scan
 * continues there.
 */
export async function scanLeaves(
  queues: Iterable<NoticeQueue>,
  leaves: AsyncIterable<ReadLeaf>,
  end: number,
  room: MemoryRoom,
) {
  const queuesByCap = new Map<string, Set<NoticeQueue>>();
  for (const queue of queues) {
    for (const cap of queue.watcher.caps.keys()) queuesByCap.set(cap, (queuesByCap.get(cap) ?? new Set()).add(queue));
  }
  const fullQueues = new Set<NoticeQueue>();
  for await (const { leaf } of leaves) {
    if (leaf.kind === "correction" || leaf.kind === "reinstated") {
      for (const queue of queuesByCap.get(leaf.capability_id) ?? []) {
        const firstLeaf = Math.max(queue.scannedTo, queue.watcher.caps.get(leaf.capability_id)!.correctedFrom);
        if (leaf.index >= firstLeaf && !fullQueues.has(queue)) queue.corrected.add(leaf.capability_id);
      }
    }
    if (leaf.kind !== "grade" || !leaf.headline) continue;
    for (const queue of queuesByCap.get(leaf.card.capability_id) ?? []) {
      if (leaf.index < Math.max(queue.scannedTo, queue.watcher.next) || fullQueues.has(queue)) continue;
      if (hasRoom(queue, room)) {
        room.notices--;
        enqueue(queue, leaf);
      } else fullQueues.add(queue);
      // Set after each leaf, so that after a failure the next scan continues at this leaf.
      queue.scannedTo = fullQueues.has(queue) ? leaf.index : leaf.index + 1;
    }
  }
  for (const set of queuesByCap.values()) {
    for (const queue of set) if (!fullQueues.has(queue)) queue.scannedTo = Math.max(queue.scannedTo, end);
  }
}

const hasRoom = ({ waiting }: NoticeQueue, room: MemoryRoom): boolean =>
  waiting.length === 0 || (waiting.length < MAX_WAITING && room.notices > 0);

function enqueue(queue: NoticeQueue, { index: leaf, card }: GradeLeaf): void {
  const capability = card.capability_id;
  const { seq, standing: from } = stateAfterQueue(queue, capability);
  const to = comparedMembers(card);
  const change = classifyChange(from, to, queue.corrected.delete(capability));
  queue.waiting.push({ capability, leaf, seq: seq + 1, change, from, to });
}

/**
 * Returns the last notice's `seq`, and the compared members of its card, as they will be for this watcher and endpoint
 * when all waiting notices are delivered.
 */
function stateAfterQueue({ watcher, waiting }: NoticeQueue, cap: string): { seq: number; standing: Standing | null } {
  for (let i = waiting.length - 1; i >= 0; i--) {
    const queued = waiting[i]!;
    if (queued.capability === cap) return { seq: queued.seq, standing: queued.to };
  }
  return watcher.caps.get(cap)!;
}
