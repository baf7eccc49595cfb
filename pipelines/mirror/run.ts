import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { bulkOf, objectsBelow, type Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { collectPartials, swapPublic } from "../4-publish/writes.ts";
import { CardSignatures } from "../published/keys.ts";
import { CHECKPOINT, INDEX_HINT, INDEX_TABLES, KEYS_HINT } from "../published/objects.ts";
import { PartFolder } from "../published/sink.ts";
import type { Source } from "../published/source.ts";
import type { GivenKeys } from "../published/trust.ts";
import { type CopyCounts, ExposedStore, type MendedObject } from "./copy.ts";
import { copyTree } from "./copy-tree.ts";
import { MissingObjects, type WantedObject } from "./missing.ts";
import { NamedObjectCopier } from "./objects.ts";
import {
  type MirrorCommit,
  type MirrorState,
  type Missing,
  type MissingList,
  type NewestLeaves,
  type RecordPart,
  type SavedTreeHead,
  toSavedTreeHead,
} from "./state.ts";
import { LeafWalk } from "./walk.ts";

const DEFAULT_WIDTH = 16;
/** Shortest time between two searches for partial tiles that may be deleted, since a search lists all tiles. */
const COLLECT_EVERY_MS = 24 * 3_600_000;

export interface MirrorOptions {
  source: Source;
  /** Folder of the objects that the mirror exposes, and folder of its own state, which is never served. */
  publicStore: Store;
  stateStore: Store;
  clock: Clock;
  keys?: GivenKeys;
  /**
   * Greatest accepted age of a checkpoint's cosignature, seconds; 0 accepts any. Default: a day if a witness is
   * trusted.
   */
  maxAgeSeconds?: number;
  /** Number of objects that are fetched at once (default 16, since fetching is mostly waiting for the network). */
  width?: number;
  /**
   * Folder for incomplete large objects, which a later run continues. Without it they are fetched again from the start.
   */
  partsDir?: string;
  /**
   * After the mirror is up to date, prove every copied object again, and fetch objects that are damaged or missing
   * (default: no).
   */
  verify?: boolean;
  /**
   * Copy only one part of the objects outside of the tree and its keys (default: all). If the folder has a copy of
   * another part, the run reads all leaves again and fetches the objects of this part. The other objects stay.
   */
  only?: RecordPart | undefined;
  /** Verify the signature of every card (default: yes). Without it only the log's signature covers the cards. */
  cardSignatures?: boolean;
  /** Called with messages for the operator. */
  say?: (text: string) => void;
  onProgress?: (progress: { done: number; of: number; what: "bundles" | "leaves" | "objects" }) => void;
}

export interface MirrorSummary {
  /**
   * `idle`: the tree has not grown, and no newer cosignature was found; missing objects may have been fetched.
   * `refreshed`: the tree has not grown, and the checkpoint has a newer cosignature. `synced`: leaves were copied.
   * `verified`: everything in the mirror was read and proven again.
   */
  result: "idle" | "refreshed" | "synced" | "verified";
  /** Whether this run changed what the mirror exposes. An `idle` run does if it fetched missing objects. */
  changed: boolean;
  origin: string;
  /** Number of leaves that were proven before this run. */
  from: number;
  tree_size: number;
  root: string;
  cosigned_at: string | null;
  /** Number of bundles, segments, and objects named by leaves that were fetched from the source. */
  fetched: number;
  /** Number of such objects that an earlier run had left in the mirror. */
  adopted: number;
  /** Objects that are missing (missing.ts), with the reason. Every run tries to fetch them again. */
  missing: Omit<Missing, "object">[];
  /** The objects that were damaged or missing in the mirror and were replaced; only of a run with option `verify`. */
  mended?: MendedObject[];
}

/** One run of a mirror. It begins after the source's checkpoint was verified. */
export class MirrorRun {
  readonly #counts: CopyCounts = { fetched: 0, adopted: 0 };
  readonly #mended: MendedObject[] = [];
  readonly #partFolder: PartFolder | null;
  readonly #exposed: ExposedStore;
  readonly #copier: NamedObjectCopier;
  readonly #missingObjects: MissingObjects;

  /**
   * @param newestIndex the newest index that a leaf names so far. The mirror's hint names an older one while the list,
   * a shard or the Parquet file of an index is missing
   */
  constructor(
    private readonly options: MirrorOptions,
    private readonly state: MirrorState,
    private readonly trusted: MirrorCommit | null,
    private readonly newestIndex: NewestLeaves["index"],
    missingList: MissingList,
    /** True: everything is proven from the first leaf on, even what earlier runs have proven. */
    private readonly verifiesAll = false,
  ) {
    this.#partFolder = options.partsDir ? new PartFolder(options.partsDir) : null;
    // A run that copies new leaves writes objects that were not there before, so only damaged ones count as mended.
    const noteRepair = (one: MendedObject) => void ((verifiesAll || one.was === "damaged") && this.#mended.push(one));
    this.#exposed = new ExposedStore(
      options.publicStore,
      bulkOf(options.publicStore),
      options.verify ? noteRepair : undefined,
    );
    this.#copier = new NamedObjectCopier(options.source, this.#exposed, this.#counts, this.#partFolder);
    // A run without a trusted commit reads all leaves and so meets every missing object again.
    this.#missingObjects = new MissingObjects(
      this.#copier,
      trusted ? missingList : { items: [], index: null },
      options.clock,
      verifiesAll,
    );
  }

  /**
   * Ends a run for which the tree has not grown: fetches missing objects, exposes the newest index if it became
   * complete, and exposes a newer cosignature if there is one.
   */
  async refresh(head: Checkpoint, trusted: MirrorCommit): Promise<MirrorSummary> {
    const { publicStore } = this.options;
    let newCommit = trusted;
    const missingBefore = this.#missingObjects.missing;
    if (this.#missingObjects.missing.length > 0) {
      await this.#withFlush(() => this.#collect(this.#missingObjects.earlierObjects));
      await this.state.saveMissing(this.#missingObjects.list(this.newestIndex));
      if (this.#missingObjects.isIndexComplete) newCommit = { ...newCommit, index: this.newestIndex };
    }
    const isFresher = isNewerCosignature(head, trusted.head);
    if (isFresher) newCommit = { ...newCommit, head: toSavedTreeHead(head) };
    if (newCommit !== trusted) {
      await this.state.saveCommit(newCommit);
      await exposeTreeHead(publicStore, newCommit);
    }
    const stillMissing = new Set(this.#missingObjects.missing.map(({ key }) => key));
    const changed = newCommit !== trusted || missingBefore.some(({ key }) => !stillMissing.has(key));
    return this.#summary(isFresher ? "refreshed" : "idle", head, newCommit.head, changed);
  }

  /** Copies and proves everything below the head that is not proven yet, then commits the run. */
  async copyNew(head: Checkpoint, tiles: TileReader): Promise<MirrorSummary> {
    const { publicStore } = this.options;
    const newest = await this.#withFlush(() => this.#copy(head, tiles));
    const index = this.#missingObjects.isIndexComplete ? newest.index : (this.trusted?.index ?? null);
    // Saved before the commit, so that no missing object is forgotten if the process dies between the two writes.
    await this.state.saveMissing(this.#missingObjects.list(newest.index));
    const { only } = this.options;
    const proven = { head: toSavedTreeHead(head), keys: newest.keys, index, ...(only && { only }) };
    await this.state.saveCommit(proven);
    await exposeTreeHead(publicStore, proven);
    await this.#deleteOldTables(index);
    await this.state.clearPending();
    await this.#deleteOldPartials();
    await this.#partFolder?.collectGarbage();
    return this.#summary(this.verifiesAll ? "verified" : "synced", head, proven.head);
  }

  /** Runs `work` and makes every object durable that it wrote, even if it fails. */
  async #withFlush<T>(work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      await this.#exposed.flush();
      return result;
    } catch (error) {
      // The error of `work` is reported, not one of this flush.
      await this.#exposed.flush().catch(() => undefined);
      throw error;
    }
  }

  async #copy(head: Checkpoint, tiles: TileReader): Promise<NewestLeaves> {
    const { source, width = DEFAULT_WIDTH, onProgress = () => undefined, cardSignatures = true, only } = this.options;
    const exposed = this.#exposed;
    const cards = cardSignatures ? new CardSignatures() : null;
    const startCommit = this.verifiesAll ? null : this.trusted;
    const start = startCommit && { ...startCommit, newestIndex: this.newestIndex };
    const walk = await LeafWalk.start(exposed, this.#copier, cards, start, only);
    const reportProgress = (done: number, of: number, what: "leaves" | "bundles") => onProgress({ done, of, what });
    const copy = { source, exposed, tiles, counts: this.#counts, parts: this.#partFolder, width };
    await copyTree({ ...copy, onProgress: reportProgress }, walk, head);
    this.#missingObjects.forgetOldTables(walk.newest.index?.table);
    const [earlier, wanted] = [this.#missingObjects.earlierObjects, walk.wantedObjects];
    // Of two objects with one key only the first is tried. A verifying run has read all leaves, so it tries objects in
    // the order of their leaves: a leaf that names an earlier leaf's key with another hash must not delete its object.
    await this.#collect(this.verifiesAll ? [...wanted, ...earlier] : [...earlier, ...wanted]);
    return walk.newest;
  }

  /** Deletes the Parquet files of indexes that are older than `index`, which the hint names. */
  async #deleteOldTables(index: NewestLeaves["index"]): Promise<void> {
    const { publicStore } = this.options;
    for await (const { key } of objectsBelow(publicStore, INDEX_TABLES)) {
      const size = Number(/(\d+)\.[0-9a-f]+\.parquet$/.exec(key)?.[1]);
      if (index && size < index.tree_size) await publicStore.delete(key);
    }
  }

  /**
   * Deletes partial tiles and bundles of older tree heads, at most once a day, as the publisher does: each run that
   * copies leaves writes new ones. Those that are less than 48 hours old, or whose full tile is missing, are kept.
   */
  async #deleteOldPartials(): Promise<void> {
    const { publicStore, clock } = this.options;
    const [now, collectedAt] = [clock.now(), await this.state.readCollected()];
    if (collectedAt && Math.abs(now.getTime() - collectedAt.getTime()) < COLLECT_EVERY_MS) return;
    await collectPartials(publicStore, clock);
    await this.state.saveCollected(now);
  }

  #collect(wanted: readonly WantedObject[]): Promise<void> {
    const { width = DEFAULT_WIDTH, onProgress = () => undefined } = this.options;
    return this.#missingObjects.collect(wanted, width, (done, of) => onProgress({ done, of, what: "objects" }));
  }

  #summary(
    result: MirrorSummary["result"],
    { origin }: Checkpoint,
    savedHead: SavedTreeHead,
    changed = true,
  ): MirrorSummary {
    const { size, root, cosigned_at } = savedHead;
    const missing = this.#missingObjects.missing.map(({ object: _, ...one }) => one);
    const from = this.trusted?.head.size ?? 0;
    const mended = this.options.verify ? { mended: this.#mended } : {};
    return { result, changed, origin, from, tree_size: size, root, cosigned_at, ...this.#counts, missing, ...mended };
  }
}

/**
 * Exposes a proven tree head: writes the checkpoint, then the hints. The next run calls this again, since this run may
 * die between these writes.
 */
export async function exposeTreeHead(store: Store, { head, keys, index }: MirrorCommit): Promise<void> {
  const replace = (key: string, bytes: Buffer) =>
    swapPublic(store, key, (stored) => (stored && bytes.equals(stored.bytes) ? null : bytes));
  await replace(CHECKPOINT, Buffer.from(head.note));
  if (index) await replace(INDEX_HINT, canonicalBytes(index));
  if (keys) await replace(KEYS_HINT, canonicalBytes(keys));
}

/**
 * Returns whether the source's cosignature is newer than the saved one. The caller has found that the trees are equal.
 */
const isNewerCosignature = (head: Checkpoint, savedHead: SavedTreeHead): boolean =>
  head.cosignedAt !== null && (savedHead.cosigned_at === null || head.cosignedAt > new Date(savedHead.cosigned_at));
