import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { MissingObject, TileReader } from "../../infra/tree/tiles.ts";
import { CHECKPOINT } from "../4-publish/objects.ts";
import { tilesFrom } from "./copy.ts";
import { Unproven } from "./errors.ts";
import { openHead, refuseOlder, refuseOther, refuseStale } from "./head.ts";
import { MAX } from "./limits.ts";
import { keysAhead } from "./rotation.ts";
import { present, Run } from "./run.ts";
import type { Source } from "./source.ts";
import { type Head, headOf, MirrorState, type Owed, type Trusted } from "./state.ts";
import { fromPins, type GivenKeys, trustOf } from "./trust.ts";

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
  /** Folder where large objects wait for their rest when a run is cut off; without it they are fetched again. */
  partsDir?: string;
  /** Verify the signature of every card (default). Without it cards stand under the log's signature alone. */
  cardSignatures?: boolean;
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
  /** Objects beside the tree that are not here, with the reason; asked for again by every run. */
  owed: Omit<Owed, "object">[];
}

/**
 * Bring a mirror up to the source's checkpoint (publication.md, Mirror). What it exposes is a proven snapshot before,
 * during and after, whatever fails: new objects come first, then one write of the mirror's own state decides, then the
 * served checkpoint follows it. A run that was cut off is resumed by adopting what it left, by its hashes. An object beside
 * the tree that is missing or does not hold is owed (owed.ts) and holds nothing up; what is wrong with the tree does.
 * @throws Rollback, Forked, Stale, Tampered, Unproven, Oversized, MissingObject, SourceDown, MirrorBusy, MirrorUsage
 */
export async function mirrorOnce(options: MirrorOptions): Promise<MirrorSummary> {
  const { source, publicStore, clock, say = () => undefined } = options;
  const state = new MirrorState(options.stateStore);
  const [known, pending, owed] = [await state.trusted(), await state.pending(), await state.owed()];
  // Without a served checkpoint the public folder may have lost anything: all of it is proven again.
  const trusted = known && (await publicStore.head(CHECKPOINT)) ? known : null;
  if (trusted) await present(publicStore, trusted);
  const bytes = await source.get(CHECKPOINT, MAX.note);
  if (!bytes) throw new MissingObject(CHECKPOINT);
  const head = await headOrRotated(options, bytes, state, known, say);
  refuseStale(head, clock, options.maxAgeSeconds);
  const seen = [known?.head, pending].filter((one): one is Head => !!one);
  for (const one of seen) await refuseOlder(head, one, state);
  // A folder may also have been filled by other means than a mirror.
  const empty = !known && !pending && (await publicStore.list("", { limit: 1 })).length === 0;
  const run = new Run(options, state, trusted, owed.index ?? trusted?.index ?? null, owed, empty);
  if (trusted && trusted.head.size === head.size) return run.same(head, trusted);
  const tiles = await TileReader.open(head.size, head.root, tilesFrom(source));
  for (const one of seen) await refuseOther(head, one, tiles, state);
  await state.savePending(headOf(head));
  return run.grown(head, tiles);
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
