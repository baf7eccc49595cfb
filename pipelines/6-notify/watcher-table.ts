import type { KeptFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import type { BodyOf, Standing } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import { registrableDomain } from "../record/url.ts";

/** Attempts that a watcher shows, the newest. */
export const MAX_LATE = 20;
/** Watchers that ended and can still be read; the one that ended longest ago goes first. */
const MAX_ENDED = 10_000;

/** Where the notices of one watched endpoint stand. */
export interface WatchedCap {
  /** `seq` of the last delivered notice, 0 before the first. */
  seq: number;
  /** What that notice's card said; before the first notice the card at the watcher's start, null when there was none. */
  standing: Standing | null;
}

export type Attempt = BodyOf<"watcher.delivered"> | BodyOf<"watcher.failed">;
export const wasDelivered = (attempt: Attempt): attempt is BodyOf<"watcher.delivered"> => "to" in attempt;

/** Attempts since the last delivered notice, all of them for the one that is due. */
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
  /** Whose limits it counts toward: the registrable domain of the receiver. */
  readonly domain: string;
  readonly watched: BodyOf<"watcher.created">["watched"];
  readonly caps: Map<string, WatchedCap>;
  readonly tokenSha256: string;
  readonly createdAt: string;
  /** Partition of its records. */
  readonly partition: number;
  /** Cards in leaves from here on make notices: all of those before it were delivered. */
  next: number;
  state: "active" | "stopped" | "disabled";
  /** In words, once it is not active. */
  why: string | null;
  endedAt: string | null;
  failing: Failing | null;
  /** Newest first. */
  late: Attempt[];
}

type Kept = { watcher: Omit<Watcher, "caps"> & { caps: [string, WatchedCap][] } } | { ended: string[] };

const WHY_STOPPED = { asked: "stopped with its token", gone: "the receiver answered 410 Gone" };

/**
 * All watchers as the topic `watchers` tells them: the same fold for the replicas that answer and for the process that
 * delivers. A record that comes twice changes nothing the second time. Live watchers are bounded where they are made.
 */
export class WatcherTable implements KeptFold {
  readonly form = "watchers.1";
  readonly #watchers = new Map<string, Watcher>();
  readonly #active = new Map<string, number>();
  readonly #ended = new Set<string>();

  get(id: string): Watcher | undefined {
    return this.#watchers.get(id);
  }

  /** Active watchers, in the order in which this fold met them. */
  *active(): Generator<Watcher> {
    for (const watcher of this.#watchers.values()) if (watcher.state === "active") yield watcher;
  }

  /** How many are active. */
  get size(): number {
    return this.#watchers.size - this.#ended.size;
  }

  /** How many active ones have their receiver under this registrable domain. */
  ofDomain(domain: string): number {
    return this.#active.get(domain) ?? 0;
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
    if (watcher.state === "active") this.#active.set(watcher.domain, this.ofDomain(watcher.domain) + 1);
  }

  clear(): void {
    for (const held of [this.#watchers, this.#active, this.#ended]) held.clear();
  }

  /** One record of the topic; what is none of the table's is passed over. */
  apply(record: LogRecord): void {
    const read = readRecord(record);
    if (!read.ok) return;
    const { type, body } = read.envelope;
    if (type === "watcher.created") this.#created(body as BodyOf<"watcher.created">, record.partition);
    if (!type.startsWith("watcher.")) return;
    const watcher = this.#watchers.get((body as { id: string }).id);
    // One that was on its way when its watcher ended came all the same.
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
    const domain = registrableDomain(body.url);
    this.#watchers.set(body.id, {
      ...{ id: body.id, url: body.url, domain, watched: body.watched, partition },
      ...{ tokenSha256: body.token_sha256, createdAt: body.created_at, next: body.tree_size },
      caps: new Map(ids.map((cap) => [cap, { seq: 0, standing: standing.get(cap) ?? null }])),
      ...{ state: "active", why: null, endedAt: null, failing: null, late: [] },
    });
    this.#active.set(domain, this.ofDomain(domain) + 1);
  }

  #end(watcher: Watcher, state: "stopped" | "disabled", why: string, at: string): void {
    Object.assign(watcher, { state, why, endedAt: at });
    const left = this.ofDomain(watcher.domain) - 1;
    if (left > 0) this.#active.set(watcher.domain, left);
    else this.#active.delete(watcher.domain);
    this.#ended.add(watcher.id);
    if (this.#ended.size <= MAX_ENDED) return;
    const [oldest] = this.#ended;
    this.#ended.delete(oldest!);
    this.#watchers.delete(oldest!);
  }
}

/** Notices go out in the order of their leaves, so a leaf below the next one says that this was told before. */
function delivered(watcher: Watcher, body: BodyOf<"watcher.delivered">): void {
  if (body.leaf < watcher.next) return;
  watcher.next = body.leaf + 1;
  watcher.failing = null;
  watcher.caps.set(body.capability_id, { seq: body.seq, standing: body.to });
  show(watcher, body);
}

function failed(watcher: Watcher, body: BodyOf<"watcher.failed">): void {
  const { leaf, attempt, says } = body;
  if (leaf < watcher.next) return;
  // Two publishers may both have tried: the attempts of both count, each record once.
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
