import { Failure } from "../../infra/errors.ts";
import type { Store } from "../../infra/store/store.ts";
import { BadBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { type Checkpoint, type CheckpointTrust, openCheckpoint } from "../../infra/tree/checkpoint.ts";
import { computeRoot, leafHash, sameHash } from "../../infra/tree/hash.ts";
import { edgeOf, entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { consistencyProof, verifyConsistency } from "../../infra/tree/proof.ts";
import { type FetchObject, MissingObject, Tampered, TileReader } from "../../infra/tree/tiles.ts";
import type { Leaf } from "../record/leaf.ts";
import { parseEntry } from "./errors.ts";
import { CHECKPOINT } from "./objects.ts";

/**
 * Reads the record from a public store: a checkpoint first, then only objects that the checkpoint commits to. Serving,
 * mirrors and auditors use it; it reads nothing from the private store.
 */

/**
 * A leaf (entry of the log) and its position. `bytes` is what the tree's hash covers, `leaf` the value parsed from
 * them, of any known or unknown kind.
 */
export interface ReadLeaf {
  index: number;
  bytes: Buffer;
  leaf: Leaf;
}

/**
 * Extension line of a checkpoint whose record was made in simulated time, as in the demo. Log and witness sign the
 * line, so replicas and mirrors can report it too.
 */
export const SIMULATED_TIME = "simulated-time";

export const isSimulated = ({ extensions }: Pick<Checkpoint, "extensions">): boolean =>
  extensions?.includes(SIMULATED_TIME) === true;

const MAX_CHECKPOINT_BYTES = 64 * 1024;

/** Reads and verifies the store's checkpoint; null when nothing was ever published. @throws BadNote, Unwitnessed */
export async function readCheckpoint(store: Pick<Store, "get">, trust: CheckpointTrust): Promise<Checkpoint | null> {
  const object = await store.get(CHECKPOINT, { maxBytes: MAX_CHECKPOINT_BYTES });
  return object && openCheckpoint(object.bytes, trust);
}

/** Returns a function that reads the log's objects from a store, for the tree's readers. */
export const createObjectFetch =
  (store: Pick<Store, "get">): FetchObject =>
  async (path) =>
    (await store.get(path))?.bytes ?? null;

/** Reads the leaves below one checkpoint. Every leaf is proven against the checkpoint's root. */
export class RecordReader {
  private constructor(
    readonly size: number,
    readonly root: Buffer,
    private readonly fetch: FetchObject,
    readonly tiles: TileReader,
  ) {}

  /** @throws MissingObject, Tampered when the tiles do not lead to the checkpoint's root. */
  static open(store: Pick<Store, "get">, head: { size: number; root: Buffer }): Promise<RecordReader> {
    return RecordReader.openWithFetch(createObjectFetch(store), head);
  }

  /** Opens a reader on a function that fetches the log's objects and limits their size. */
  static async openWithFetch(fetch: FetchObject, head: { size: number; root: Buffer }): Promise<RecordReader> {
    return new RecordReader(head.size, head.root, fetch, await TileReader.open(head.size, head.root, fetch));
  }

  /** Returns whether this tree begins with the leaves of an older proven tree. @throws MissingObject, Tampered */
  async extends(older: { size: number; root: Buffer }): Promise<boolean> {
    if (older.size > this.size) return false;
    if (older.size === 0) return true;
    const proof = await consistencyProof(older.size, this.size, this.tiles.node);
    return verifyConsistency(older.size, this.size, older.root, this.root, proof);
  }

  /** Returns the entries of bundle n, each proven. @throws Tampered naming the bundle, MissingObject */
  async entries(n: number): Promise<Buffer[]> {
    return (await fetchProvenBundle(this.fetch, this.tiles, n)).entries;
  }

  /**
   * Yields the leaves [from, to) in order, proven bundle by bundle.
   * @throws RangeError, Unproven for a leaf that is not JSON with its index, and what `entries` throws
   */
  async *leaves(from = 0, to = this.size): AsyncGenerator<ReadLeaf> {
    if (from < 0 || to > this.size || from > to) throw new RangeError(`no leaves [${from}, ${to}) of ${this.size}`);
    for (let at = from; at < to; ) {
      const n = Math.floor(at / TILE_WIDTH);
      const entries = await this.entries(n);
      const end = Math.min(to, (n + 1) * TILE_WIDTH);
      for (; at < end; at++) {
        const bytes = entries[at - n * TILE_WIDTH]!;
        yield { index: at, bytes, leaf: parseEntry(at, bytes) };
      }
    }
  }
}

/** A packed entry bundle (up to 256 leaves), and the key of its object. */
export interface PackedBundle {
  key: string;
  packed: Uint8Array;
  /** Number of entries in the object. It may be greater than the requested number. */
  entryCount: number;
}

/**
 * Fetches bundle n with at least `width` entries. If the partial bundle is gone, the full one that replaced it is
 * fetched.
 * @throws MissingObject
 */
export async function fetchBundle(fetch: FetchObject, n: number, width: number): Promise<PackedBundle> {
  const key = entriesPath(n, width);
  const packed = await fetch(key);
  if (packed) return { key, packed, entryCount: width };
  const fullBundle = width < TILE_WIDTH ? await fetch(entriesPath(n)) : null;
  if (!fullBundle) throw new MissingObject(key);
  return { key: entriesPath(n), packed: fullBundle, entryCount: TILE_WIDTH };
}

/** Unpacks all entries of a bundle. @throws Tampered, which names the object, when it cannot be unpacked */
export async function unpackEntries({ key, packed, entryCount }: PackedBundle): Promise<Buffer[]> {
  try {
    return await unpackBundle(packed, entryCount);
  } catch (error) {
    if (error instanceof BadBundle) throw new Tampered(key, `${entryCount} entries`, error.message);
    throw error;
  }
}

/** Leaves of a bundle, and their hashes. */
export interface ProvenBundle {
  n: number;
  entries: Buffer[];
  hashes: Buffer[];
}

/** Number of entries that bundle n of a tree of `size` leaves has. */
export function bundleWidth(n: number, size: number): number {
  const { full, width } = edgeOf(size, 0);
  return n < full ? TILE_WIDTH : width;
}

/**
 * Fetches the leaves of bundle n that are in the tree and proves them against the tile above it.
 * @throws MissingObject, Tampered, which names the bundle
 */
export async function fetchProvenBundle(fetch: FetchObject, tiles: TileReader, n: number): Promise<ProvenBundle> {
  const width = bundleWidth(n, tiles.size);
  const entries = (await unpackEntries(await fetchBundle(fetch, n, width))).slice(0, width);
  const hashes = entries.map(leafHash);
  const expectedRoot = width === TILE_WIDTH ? await tiles.rootOfTile(0, n) : computeRoot(await tiles.tile(0, n));
  const computedRoot = computeRoot(hashes);
  if (!sameHash(computedRoot, expectedRoot))
    throw new Tampered(entriesPath(n, width), expectedRoot.toString("hex"), computedRoot.toString("hex"));
  return { n, entries, hashes };
}

/** The published history is not the one that was read before: a rollback or a fork. */
class HistoryChanged extends Failure {
  constructor(reason: string) {
    super("failed", reason);
  }
}

const isCosignedBefore = (a: Checkpoint, b: Checkpoint): boolean =>
  a.cosignedAt !== null && b.cosignedAt !== null && a.cosignedAt < b.cosignedAt;

/** A proven state of the published tree. A later checkpoint is accepted only if its tree extends this one. */
export interface Snapshot {
  readonly head: Checkpoint;
  readonly reader: RecordReader;
}

/**
 * Follows the published tree. It refuses a tree that is smaller than the last one or contradicts it, and proves every
 * leaf before it is returned.
 */
export class PublishedTree {
  #lastSnapshot: Snapshot | null = null;

  constructor(
    private readonly store: Pick<Store, "get">,
    private currentTrust: CheckpointTrust,
  ) {}

  /**
   * Sets the keys for the next read, after a rotation. The next checkpoint must still extend the last one that was
   * read.
   */
  setTrust(trust: CheckpointTrust): void {
    this.currentTrust = trust;
  }

  /**
   * Reads the newest checkpoint; null before the first publication. If the tree has not grown, and the checkpoint was
   * cosigned before the last one that was read, as an old copy in a cache was, the checkpoint is ignored.
   * @throws BadNote, Unwitnessed, MissingObject, Tampered; HistoryChanged when its tree is smaller than the last one or
   * does not extend it
   */
  async newest(): Promise<Snapshot | null> {
    const head = await readCheckpoint(this.store, this.currentTrust);
    const lastSnapshot = this.#lastSnapshot;
    if (!head) {
      if (lastSnapshot) throw new HistoryChanged(`the checkpoint of ${lastSnapshot.head.size} leaves is gone`);
      return null;
    }
    if (lastSnapshot && head.size < lastSnapshot.head.size)
      throw new HistoryChanged(`back from ${lastSnapshot.head.size} leaves to ${head.size}`);
    if (lastSnapshot && head.size === lastSnapshot.head.size) {
      if (!head.root.equals(lastSnapshot.head.root)) throw new HistoryChanged(`two roots for ${head.size} leaves`);
      // The publisher signs a checkpoint again to show that it is current, or to add cosignatures that arrived late.
      if (!isCosignedBefore(head, lastSnapshot.head)) this.#lastSnapshot = { head, reader: lastSnapshot.reader };
      return this.#lastSnapshot;
    }
    const reader = await RecordReader.open(this.store, head);
    if (lastSnapshot && !(await reader.extends(lastSnapshot.head))) {
      throw new HistoryChanged(`the tree of ${head.size} leaves does not begin with that of ${lastSnapshot.head.size}`);
    }
    this.#lastSnapshot = { head, reader };
    return this.#lastSnapshot;
  }
}
