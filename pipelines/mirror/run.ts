import { canonicalBytes } from "../../infra/canonical.ts";
import { VerifyPool } from "../../infra/keys/verify-pool.ts";
import { bulkOf } from "../../infra/store/bulk.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { CHECKPOINT, HINT_INDEX, HINT_KEYS } from "../4-publish/objects.ts";
import { swapPublic } from "../4-publish/writes.ts";
import { CardSignatures } from "./card-signatures.ts";
import { Exposed, type Tally } from "./copy.ts";
import { copyTree } from "./copy-tree.ts";
import type { MirrorOptions, MirrorSummary } from "./mirror.ts";
import { NamedObjects } from "./objects.ts";
import { Objects, type WantedObject } from "./owed.ts";
import { Prefetch } from "./prefetch.ts";
import { followKeys } from "./rotation.ts";
import { SegmentThreads } from "./segment-threads.ts";
import { PartFolder } from "./sink.ts";
import { type Head, headOf, type MirrorState, type Newest, type OwedList, type Trusted } from "./state.ts";
import { Walk } from "./walk.ts";

/** One run, once its head is believed. */
export class Run {
  readonly #tally: Tally = { fetched: 0, adopted: 0 };
  readonly #parts: PartFolder | null;
  readonly #exposed: Exposed;
  readonly #threads = new SegmentThreads();
  readonly #source: Prefetch;
  readonly #named: NamedObjects;
  readonly #objects: Objects;

  /**
   * @param newestIndex of the tree as far as it was read: not yet hinted at while something of it is owed
   * @param empty the public folder has no object yet
   */
  constructor(
    private readonly options: MirrorOptions,
    private readonly state: MirrorState,
    private readonly trusted: Trusted | null,
    private readonly newestIndex: Newest["index"],
    owed: OwedList,
    empty: boolean,
  ) {
    this.#parts = options.partsDir ? new PartFolder(options.partsDir) : null;
    this.#exposed = new Exposed(options.publicStore, bulkOf(options.publicStore), empty);
    this.#source = new Prefetch(options.source, (key) => this.#exposed.has(key));
    this.#named = new NamedObjects(this.#source, this.#exposed, this.#tally, this.#parts, this.#threads);
    // A mirror that begins again from nothing finds in the tree all that it owes.
    this.#objects = new Objects(this.#named, this.#source, trusted ? owed : { items: [], index: null }, options.clock);
  }

  /** Nothing new in the tree: what was owed is asked for again, and a fresher cosignature is handed on. */
  async same(head: Checkpoint, trusted: Trusted): Promise<MirrorSummary> {
    const { publicStore } = this.options;
    let next = trusted;
    if (this.#objects.owed.length > 0) {
      await this.#settling(() => this.#collect(this.#objects.before));
      await this.state.saveOwed(this.#objects.list(this.newestIndex));
      if (this.#objects.indexWhole) next = { ...next, index: this.newestIndex };
    }
    const fresher = isFresher(head, trusted.head);
    if (fresher) next = { ...next, head: headOf(head) };
    if (next !== trusted) {
      await this.state.saveTrusted(next);
      await present(publicStore, next);
    }
    return this.#summary(fresher ? "refreshed" : "idle", head, next.head);
  }

  /** Copy and prove everything below the head, then commit to it. */
  async grown(head: Checkpoint, tiles: TileReader): Promise<MirrorSummary> {
    const { publicStore, clock } = this.options;
    const newest = await this.#settling(() => this.#copy(head, tiles));
    const index = this.#objects.indexWhole ? newest.index : (this.trusted?.index ?? null);
    // Before the commit: what is missing below it must not be forgotten.
    await this.state.saveOwed(this.#objects.list(newest.index));
    const proven = { head: headOf(head), keys: newest.keys, index };
    await this.state.saveTrusted(proven);
    await present(publicStore, proven);
    await followKeys(this.state, publicStore, newest.keys, head.origin, clock);
    await this.state.clearPending();
    await this.#parts?.sweep();
    return this.#summary("synced", head, proven.head);
  }

  /** Every object is durable when this returns, or owed. After a fault too all that came before it is kept. */
  async #settling<T>(work: () => Promise<T>): Promise<T> {
    try {
      const done = await work();
      await this.#exposed.settle();
      return done;
    } catch (error) {
      // The first fault is the one to tell of.
      await this.#exposed.settle().catch(() => undefined);
      throw error;
    } finally {
      await this.#source.stop();
      await this.#threads.close();
    }
  }

  async #copy(head: Checkpoint, tiles: TileReader): Promise<Newest> {
    const { width = 8, onProgress = () => undefined, cardSignatures = true } = this.options;
    const exposed = this.#exposed;
    const [pool, threads] = [new VerifyPool(), this.#threads];
    try {
      const cards = cardSignatures ? new CardSignatures(pool) : null;
      const from = this.trusted && { ...this.trusted, newestIndex: this.newestIndex };
      const walk = await Walk.from(exposed, this.#named, cards, from);
      const progress = (done: number, of: number, what: "leaves" | "bundles") => onProgress({ done, of, what });
      const copy = { source: this.#source, exposed, tiles, tally: this.#tally, parts: this.#parts, width };
      await copyTree({ ...copy, threads, cardSignatures, onProgress: progress }, walk, head);
      await this.#collect([...this.#objects.before, ...walk.wanted]);
      return walk.newest;
    } finally {
      await pool.close();
    }
  }

  #collect(wanted: readonly WantedObject[]): Promise<void> {
    const { width = 8, onProgress = () => undefined } = this.options;
    return this.#objects.collect(wanted, width, (done, of) => onProgress({ done, of, what: "objects" }));
  }

  #summary(result: MirrorSummary["result"], { origin }: Checkpoint, held: Head): MirrorSummary {
    const { size, root, cosigned_at } = held;
    const owed = this.#objects.owed.map(({ object: _, ...one }) => one);
    return { result, origin, from: this.trusted?.head.size ?? 0, size, root, cosigned_at, ...this.#tally, owed };
  }
}

/** Serve what is proven: the checkpoint, then the hints. Also finishes a run that died after its commit. */
export async function present(store: Store, { head, keys, index }: Trusted): Promise<void> {
  const replace = (key: string, bytes: Buffer) =>
    swapPublic(store, key, (theirs) => (theirs && bytes.equals(theirs.bytes) ? null : bytes));
  await replace(CHECKPOINT, Buffer.from(head.note));
  if (index) await replace(HINT_INDEX, canonicalBytes(index));
  if (keys) await replace(HINT_KEYS, canonicalBytes(keys));
}

/** An older cosignature of the same tree says nothing new, and a mirror never goes back. */
const isFresher = (head: Checkpoint, held: Head): boolean =>
  head.cosignedAt !== null && (held.cosigned_at === null || head.cosignedAt > new Date(held.cosigned_at));
