import { MAX_BUNDLE_BYTES } from "../../infra/tree/bundle.ts";
import { HASH_BYTES } from "../../infra/tree/hash.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";

/** What each kind of object may have, so that no source can fill memory or disk. Bytes. */
export const MAX = {
  note: 64 * 1024,
  tile: TILE_WIDTH * HASH_BYTES,
  /** Gzip makes what it cannot pack at most slightly longer. */
  bundle: MAX_BUNDLE_BYTES + MAX_BUNDLE_BYTES / 256,
  hint: 64 * 1024,
  keys: 4 * 1024 * 1024,
  /** An object that a leaf names, whatever the leaf says of its size. */
  named: 256 * 1024 * 1024,
  /** A segment, unpacked: 65,536 leaves of a few kilobytes. */
  segment: 1024 * 1024 * 1024,
  /** An evidence file, unpacked: it is only ever read through, never held. */
  unpacked: 8 * 1024 * 1024 * 1024,
} as const;

/** Longest zstd frame over `bytes` bytes that cannot be packed. */
export const packedBound = (bytes: number): number => bytes + Math.ceil(bytes / 128) + 4096;
