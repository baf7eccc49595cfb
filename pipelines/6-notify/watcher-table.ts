import type { StoredFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { FairQueue, type Holder } from "../../infra/shares.ts";
import type { ReadLeaf } from "../published/reader.ts";
import type { BodyOf, Standing } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import type { GradeLeaf } from "../record/leaf.ts";
import { DAY_MS, rfc3339 } from "../record/time.ts";
import { platformOf, registrableDomain } from "../record/url.ts";
import { type Change, changeOf, standingOf } from "./notice.ts";

/** Newest attempts that a watcher shows. */
const MAX_LATE = 20;
/** Ended watchers that can still be read; the one that ended first is dropped first. */
const MAX_ENDED = 10_000;

/** State of the notices of one watched endpoint. */
export interface WatchedCap {
  /** `seq` of the last delivered notice, 0 before the first. */
  seq: number;
  /**
   * The card of that notice; before the first notice the card when the watcher was created, null when there was none.
   */
  standing: Standing | null;
}

export type Attempt = BodyOf<"watcher.delivered"> | BodyOf<"watcher.failed">;
export const wasDelivered = (attempt: Attempt): attempt is BodyOf<"watcher.delivered"> => "to" in attempt;

/** Failed attempts since the last delivered notice. All were for one notice, the next one. */
export interface Failing {
  leaf: number;
  since: string;
  attempts: number;
  retryAt: string;
  says: string;
}

export interface Watcher {
  readonly id: string;
  readonly url: string;
  /** Registrable domain and platform of the receiver, which have limits. */
  readonly domain: string;
  readonly platform: string;
  /** Opaque name of the client network that created it; null in old records. */
  readonly by: string | null;
  /** When it was created, or when its last notice was accepted. */
  /** When it was made, or a notice of it was accepted last. */
  usedAt: string;
  readonly watched: BodyOf<"watcher.created">["watched"];
  readonly caps: Map<string, WatchedCap>;
  readonly tokenSha256: string;
  /** Base64; null where its creator gave none. */
  readonly hmacKey: string | null;
  readonly createdAt: string;
  /** Partition of its records. */
  readonly partition: number;
  /** Leaves below this one are done: their notices were delivered. */
  next: number;
  state: "active" | "stopped" | "disabled";
  /** Why it ended, in words; null while it is active. */
  why: string | null;
  endedAt: string | null;
  failing: Failing | null;
  /** Newest first. */
  late: Attempt[];
}

type Kept = { watcher: Omit<Watcher, "caps"> & { caps: [string, WatchedCap][] } } | { ended: string[] };

const WHY_STOPPED = {
  asked: "stopped with its token",
  gone: "the receiver answered 410 Gone",
  unused: "no notice was accepted for 90 days, and others needed the room; make a new one",
  share: "others needed the room, and whoever made it, or its receiver's platform, had most; make a new one later",
};

/** When room is needed, a watcher whose receiver accepted nothing for this long is ended first, ms. */
const UNUSED_MS = 90 * DAY_MS;

/** The holder that a watcher counts for: the network that created it, and its receiver's platform. */
const holderOf = ({ by, platform }: Pick<Watcher, "by" | "platform">): Holder => ({
  client: by ?? undefined,
  domain: platform,
});

/**
 * All watchers, folded from the topic `watchers`; used by the replicas that answer and by the process that delivers. A
 * record that is applied twice changes nothing the second time. The number of active watchers is bounded where they are
 * created.
 */
export class WatcherTable implements StoredFold {
  readonly form = "watchers.3";
  readonly #watchers = new Map<string, Watcher>();
  readonly #active = new Map<string, number>();
  readonly #ended = new Set<string>();

  get(id: string): Watcher | undefined {
    return this.#watchers.get(id);
  }

  /** Active watchers, in the order in which they were created. */
  *active(): Generator<Watcher> {
    for (const watcher of this.#watchers.values()) if (watcher.state === "active") yield watcher;
  }

  /** Number of active watchers. */
  get size(): number {
    return this.#watchers.size - this.#ended.size;
  }

  /** Number of active watchers with a receiver under this registrable domain. */
  ofDomain(domain: string): number {
    return this.#active.get(domain) ?? 0;
  }

  /** Number of active watchers with a receiver under this platform. */
  ofPlatform(platform: string): number {
    return this.#active.get(`all of ${platform}`) ?? 0;
  }

  /**
   * The watcher that would be ended to make room for one more, where at most `most` may be active: the one unused for
   * the longest time, else the newest of the holder with the most watchers. @returns null: there is room; undefined:
   * none may be ended
   */
  wouldEnd(most: number, one: Pick<Watcher, "by" | "platform">, now: Date) {
    if (this.size < most) return null;
    const before = rfc3339(new Date(now.getTime() - UNUSED_MS));
    const line = new FairQueue<Watcher>({ name: "watchers", size: this.size });
    let unused: Watcher | null = null;
    for (const watcher of this.active()) {
      line.admit(holderOf(watcher), watcher);
      if (watcher.usedAt < (unused?.usedAt ?? before)) unused = watcher;
    }
    if (unused) return { watcher: unused, why: "unused" as const };
    const watcher = line.wouldEvict(holderOf(one));
    return watcher ? { watcher, why: "share" as const } : undefined;
  }

  #count({ domain, platform }: Watcher, by: 1 | -1): void {
    for (const name of [domain, `all of ${platform}`]) {
      const count = (this.#active.get(name) ?? 0) + by;
      if (count > 0) this.#active.set(name, count);
      else this.#active.delete(name);
    }
  }

  *kept(): Generator<Kept> {
    for (const watcher of this.#watchers.values()) yield { watcher: { ...watcher, caps: [...watcher.caps] } };
    yield { ended: [...this.#ended] };
  }

  restore(value: unknown): void {
    const kept = value as Kept;
    if ("ended" in kept) {
      for (const id of kept.ended) this.#ended.add(id);
      return;
    }
    const watcher: Watcher = { ...kept.watcher, caps: new Map(kept.watcher.caps) };
    this.#watchers.set(watcher.id, watcher);
    if (watcher.state === "active") this.#count(watcher, 1);
  }

  clear(): void {
    for (const held of [this.#watchers, this.#active, this.#ended]) held.clear();
  }

  /** Applies a record of the topic; a record that cannot be read is skipped. */
  apply(record: LogRecord): void {
    const read = readRecord(record);
    if (!read.ok) return;
    const { type, body } = read.envelope;
    if (type === "watcher.created") this.#created(body as BodyOf<"watcher.created">, record.partition);
    if (!type.startsWith("watcher.")) return;
    const watcher = this.#watchers.get((body as { id: string }).id);
    // A delivery that was under way when its watcher ended was received all the same.
    if (watcher && type === "watcher.delivered") delivered(watcher, body as BodyOf<"watcher.delivered">);
    if (watcher?.state !== "active") return;
    if (type === "watcher.failed") failed(watcher, body as BodyOf<"watcher.failed">);
    if (type === "watcher.stopped") {
      const { why, at } = body as BodyOf<"watcher.stopped">;
      this.#end(watcher, "stopped", WHY_STOPPED[why], at);
    }
    if (type === "watcher.disabled") {
      const { since, says, at } = body as BodyOf<"watcher.disabled">;
      this.#end(watcher, "disabled", `no notice was accepted since ${since}; at last: ${says}`, at);
    }
  }

  #created(body: BodyOf<"watcher.created">, partition: number): void {
    if (this.#watchers.has(body.id)) return;
    const standing = new Map(body.standing.map(({ capability_id, ...card }) => [capability_id, card]));
    const ids = body.watched.flatMap(({ capability_ids }) => capability_ids);
    const { url, by = null } = body;
    const watcher: Watcher = {
      ...{ id: body.id, url, domain: registrableDomain(url), platform: platformOf(url), by, partition },
      ...{ watched: body.watched, usedAt: body.created_at },
      hmacKey: body.hmac_key ?? null,
      ...{ tokenSha256: body.token_sha256, createdAt: body.created_at, next: body.tree_size },
      caps: new Map(ids.map((cap) => [cap, { seq: 0, standing: standing.get(cap) ?? null }])),
      ...{ state: "active", why: null, endedAt: null, failing: null, late: [] },
    };
    this.#watchers.set(body.id, watcher);
    this.#count(watcher, 1);
  }

  #end(watcher: Watcher, state: "stopped" | "disabled", why: string, at: string): void {
    Object.assign(watcher, { state, why, endedAt: at });
    this.#count(watcher, -1);
    this.#ended.add(watcher.id);
    if (this.#ended.size <= MAX_ENDED) return;
    const [oldest] = this.#ended;
    this.#ended.delete(oldest!);
    this.#watchers.delete(oldest!);
  }
}

/** Notices are delivered in the order of their leaves, so a record of a leaf below `next` was applied before. */
function delivered(watcher: Watcher, body: BodyOf<"watcher.delivered">): void {
  if (body.leaf < watcher.next) return;
  watcher.next = body.leaf + 1;
  watcher.failing = null;
  watcher.usedAt = body.at;
  watcher.caps.set(body.capability_id, { seq: body.seq, standing: body.to });
  show(watcher, body);
}

function failed(watcher: Watcher, body: BodyOf<"watcher.failed">): void {
  const { leaf, attempt, says } = body;
  if (leaf < watcher.next) return;
  // Two processes may both have tried: the attempts of both count, each record once.
  if (watcher.failing?.leaf === leaf && attempt <= watcher.failing.attempts) return;
  watcher.failing = {
    ...{ leaf, says, attempts: attempt, retryAt: body.retry_at },
    since: watcher.failing?.since ?? body.at,
  };
  show(watcher, body);
}

function show(watcher: Watcher, attempt: Attempt): void {
  watcher.late = [attempt, ...watcher.late.slice(0, MAX_LATE - 1)];
}

/** Most notices of one watcher in memory; the others are read from the tree when these are delivered. */
const MAX_WAITING = 200;
/**
 * Most notices of all watchers in memory. A watcher without any may always hold one, so that dead receivers never block
 * another's.
 */
export const MAX_WAITING_ALL = 50_000;

/** The queue of one watcher: its notices that are to be sent, in the order of their leaves. */
export interface Line {
  readonly watcher: Watcher;
  readonly waiting: Change[];
  /** Leaves below this were scanned for this watcher: their notices are delivered or wait. */
  seen: number;
  /**
   * Watched endpoints for which a correction, or the withdrawal of one, was published after their last scanned card.
   */
  readonly corrected: Set<string>;
}

/** Room for further notices in memory, for all queues together. */
interface Room {
  all: number;
}

/** Are there leaves that were scanned for other queues and not for this one, and has it room? */
export const isBehind = ({ seen, waiting }: Line, scanned: number): boolean =>
  seen < scanned && waiting.length <= MAX_WAITING / 2;

/**
 * Scans leaves up to `to` for these queues: headline cards of watched endpoints become notices. A queue that is full
 * stops where it is, and a later scan goes on from there.
 */
export async function scan(lines: Iterable<Line>, leaves: AsyncIterable<ReadLeaf>, to: number, room: Room) {
  const byCap = new Map<string, Set<Line>>();
  for (const line of lines) {
    for (const cap of line.watcher.caps.keys()) byCap.set(cap, (byCap.get(cap) ?? new Set()).add(line));
  }
  const full = new Set<Line>();
  for await (const { leaf } of leaves) {
    if (leaf.kind === "correction" || leaf.kind === "reinstated") {
      for (const line of byCap.get(leaf.capability_id) ?? []) {
        if (leaf.index >= line.seen && !full.has(line)) line.corrected.add(leaf.capability_id);
      }
    }
    if (leaf.kind !== "grade" || !leaf.headline) continue;
    for (const line of byCap.get(leaf.card.capability_id) ?? []) {
      if (leaf.index < Math.max(line.seen, line.watcher.next) || full.has(line)) continue;
      if (hasRoom(line, room)) {
        room.all--;
        enqueue(line, leaf);
      } else full.add(line);
      // Set here and not at the end, so that a scan that fails half-way goes on from here.
      line.seen = full.has(line) ? leaf.index : leaf.index + 1;
    }
  }
  for (const set of byCap.values()) {
    for (const line of set) if (!full.has(line)) line.seen = Math.max(line.seen, to);
  }
}

const hasRoom = ({ waiting }: Line, room: Room): boolean =>
  waiting.length === 0 || (waiting.length < MAX_WAITING && room.all > 0);

function enqueue(line: Line, { index: leaf, card }: GradeLeaf): void {
  const capability = card.capability_id;
  const { seq, standing: from } = lastOf(line, capability);
  const to = standingOf(card);
  const change = changeOf(from, to, line.corrected.delete(capability));
  line.waiting.push({ capability, leaf, seq: seq + 1, change, from, to });
}

/** The state of an endpoint's notices once all that wait are delivered. */
function lastOf({ watcher, waiting }: Line, cap: string): { seq: number; standing: Standing | null } {
  for (let i = waiting.length - 1; i >= 0; i--) {
    const one = waiting[i]!;
    if (one.capability === cap) return { seq: one.seq, standing: one.to };
  }
  return watcher.caps.get(cap)!;
}
