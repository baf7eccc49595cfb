import { MAX_BUNDLE_BYTES } from "../../infra/tree/bundle.ts";
import { HASH_BYTES } from "../../infra/tree/hash.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";

/** Largest number of bytes of each kind of public object, so that no source can fill memory or disk. */
export const MAX_BYTES = {
  note: 64 * 1024,
  tile: TILE_WIDTH * HASH_BYTES,
  /** An entry bundle. Gzip can make incompressible bytes slightly longer. */
  bundle: MAX_BUNDLE_BYTES + MAX_BUNDLE_BYTES / 256,
  hint: 64 * 1024,
  keys: 4 * 1024 * 1024,
  /** An object that a leaf names, even if the leaf claims a larger size. */
  named: 256 * 1024 * 1024,
  /** An evidence file, unpacked. It is read as a stream and never kept whole in memory. */
  unpacked: 8 * 1024 * 1024 * 1024,
} as const;

/** Longest zstd frame of `bytes` incompressible bytes. */
export const packedBound = (bytes: number): number => bytes + Math.ceil(bytes / 128) + 4096;
