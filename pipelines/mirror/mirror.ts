import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject, TileReader } from "../../infra/tree/tiles.ts";
import { CHECKPOINT, HINT_INDEX, HINT_KEYS, segmentKey } from "../4-publish/objects.ts";
import { packSegment } from "../4-publish/segment.ts";
import { swapPublic } from "../4-publish/writes.ts";
import { BundleCopier, expose, type Tally, tilesFrom } from "./copy.ts";
import { Unproven } from "./errors.ts";
import { openHead, refuseOlder, refuseOther, refuseStale } from "./head.ts";
import { inLanes, range } from "./lanes.ts";
import { MAX } from "./limits.ts";
import { NamedObjects, type ShardLine } from "./objects.ts";
import { followKeys, keysAhead } from "./rotation.ts";
import type { Source } from "./source.ts";
import { type Head, headOf, MirrorState, type Trusted } from "./state.ts";
import { fromPins, type GivenKeys, trustOf } from "./trust.ts";
import { Walk } from "./walk.ts";

export interface MirrorOptions {
  source: Source;
  /** What the mirror exposes, and what it remembers: two folders, the second never served. */
  publicStore: Store;
  stateStore: Store;
  clock: Clock;
  keys?: GivenKeys;
  /** Oldest acceptable cosignature in seconds; 0 asks nothing. Default: a day, where a witness is trusted. */
  maxAgeSeconds?: number;
  /** Objects fetched at once (default 8). */
  width?: number;
  /** What the operator has to know. */
  say?: (text: string) => void;
  onProgress?: (progress: { done: number; of: number; what: "bundles" | "leaves" | "objects" }) => void;
}

export interface MirrorSummary {
  /** `idle`: nothing new. `refreshed`: the same tree under a newer cosignature. `synced`: new leaves. */
  result: "idle" | "refreshed" | "synced";
  origin: string;
  from: number;
  size: number;
  root: string;
  cosigned_at: string | null;
  /** Bundles, keys documents, index lists, shards and evidence files: from the source, and found here from an earlier run. */
  fetched: number;
  adopted: number;
}

/**
 * Bring a mirror up to the source's checkpoint (publication.md, Mirror). What it exposes is a proven snapshot before,
 * during and after, whatever fails: new objects come first, then one write of the mirror's own state decides, then the
 * served checkpoint follows it. A run that was cut off is resumed by adopting what it left, by its hashes.
 * @throws Rollback, Forked, Stale, Tampered, Unproven, Oversized, MissingObject, SourceDown, MirrorBusy, MirrorUsage
 */
export async function mirrorOnce(options: MirrorOptions): Promise<MirrorSummary> {
  const { source, publicStore, clock, say = () => undefined } = options;
  const state = new MirrorState(options.stateStore);
  const [known, pending] = [await state.trusted(), await state.pending()];
  // Without a served checkpoint the public folder may have lost anything: all of it is proven again.
  const trusted = known && (await publicStore.head(CHECKPOINT)) ? known : null;
  if (trusted) await present(publicStore, trusted);
  const bytes = await source.get(CHECKPOINT, MAX.note);
  if (!bytes) throw new MissingObject(CHECKPOINT);
  const head = await headOrRotated(options, bytes, state, known, say);
  refuseStale(head, clock, options.maxAgeSeconds);
  const seen = [known?.head, pending].filter((one): one is Head => !!one);
  for (const one of seen) await refuseOlder(head, one, state);
  const from = trusted?.head.size ?? 0;
  const tally: Tally = { fetched: 0, adopted: 0 };
  const summary = (result: MirrorSummary["result"], { size, root, cosigned_at }: Head) => ({
    ...{ result, origin: head.origin, from, size, root, cosigned_at },
    ...tally,
  });
  if (trusted && from === head.size) {
    if (!isFresher(head, trusted.head)) return summary("idle", trusted.head);
    const fresher = { ...trusted, head: headOf(head) };
    await state.saveTrusted(fresher);
    await present(publicStore, fresher);
    return summary("refreshed", fresher.head);
  }
  const tiles = await TileReader.open(head.size, head.root, tilesFrom(source));
  for (const one of seen) await refuseOther(head, one, tiles, state);
  await state.savePending(headOf(head));
  const newest = await copyTree(options, head, tiles, trusted, tally);
  const proven = { head: headOf(head), ...newest };
  await state.saveTrusted(proven);
  await present(publicStore, proven);
  await followKeys(state, publicStore, newest.keys, head.origin, clock);
  await state.clearPending();
  return summary("synced", proven.head);
}

/** The signed head; under the keys of newer documents where the ones we know have all retired. */
async function headOrRotated(
  { source, publicStore, clock, keys = {} }: MirrorOptions,
  bytes: Uint8Array,
  state: MirrorState,
  known: Trusted | null,
  say: (text: string) => void,
): Promise<Checkpoint> {
  const trust = await trustOf(source, bytes, state, keys, say);
  try {
    return openHead(bytes, trust);
  } catch (error) {
    const pins = await state.pins();
    if (!(error instanceof Unproven) || !known?.keys || !pins) throw error;
    const ahead = await keysAhead(source, publicStore, pins, known.keys, trust.log.name, clock);
    if (!ahead) throw error;
    say("the keys of the checkpoint were rotated: their documents continue the chain that was proven here");
    return openHead(bytes, fromPins(ahead));
  }
}

/** Copy and prove everything below the head. Every object is durable when this returns. */
async function copyTree(
  options: MirrorOptions,
  head: Checkpoint,
  tiles: TileReader,
  trusted: Trusted | null,
  tally: Tally,
): Promise<Walk["newest"]> {
  const { source, publicStore, width = 8, onProgress = () => undefined } = options;
  const objects = new NamedObjects(source, publicStore, tally);
  const walk = await Walk.from(publicStore, objects, trusted);
  const copier = new BundleCopier(source, publicStore, tiles, tally);
  const [first, end] = [Math.floor(walk.size / TILE_WIDTH), Math.ceil(head.size / TILE_WIDTH)];
  const firstSegment = Math.floor(walk.size / SEGMENT_LEAVES);
  let done = 0;
  await inLanes(width, range(first, end), async (n) => {
    await copier.copy(n);
    onProgress({ done: ++done, of: end - first, what: "bundles" });
  });
  await walk.to(head, (size) => onProgress({ done: size, of: head.size, what: "leaves" }));
  const shards = new Map<string, ShardLine>();
  await inLanes(width, walk.indexes, async ({ leaf, jwks }) => {
    for (const shard of await objects.index(leaf, jwks)) shards.set(shard.sha256, shard);
  });
  done = 0;
  await inLanes(width, shards.values(), async (shard) => {
    await objects.shard(shard);
    onProgress({ done: ++done, of: shards.size, what: "objects" });
  });
  done = 0;
  await inLanes(width, walk.evidence, async (leaf) => {
    await objects.evidence(leaf);
    onProgress({ done: ++done, of: walk.evidence.length, what: "objects" });
  });
  for (const n of range(firstSegment, Math.floor(head.size / SEGMENT_LEAVES))) {
    await expose(publicStore, segmentKey(n), await packSegment(publicStore, n));
  }
  return walk.newest;
}

/** Serve what is proven: the checkpoint, then the hints. Also finishes a run that died after its commit. */
async function present(store: Store, { head, keys, index }: Trusted): Promise<void> {
  const replace = (key: string, bytes: Buffer) =>
    swapPublic(store, key, (theirs) => (theirs && bytes.equals(theirs.bytes) ? null : bytes));
  await replace(CHECKPOINT, Buffer.from(head.note));
  if (index) await replace(HINT_INDEX, canonicalBytes(index));
  if (keys) await replace(HINT_KEYS, canonicalBytes(keys));
}

/** An older cosignature of the same tree says nothing new, and a mirror never goes back. */
const isFresher = (head: Checkpoint, held: Head): boolean =>
  head.cosignedAt !== null && (held.cosigned_at === null || head.cosignedAt > new Date(held.cosigned_at));
