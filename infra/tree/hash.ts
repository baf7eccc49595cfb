import { hash } from "node:crypto";

/** Size of every hash, bytes. This file computes the hashes of a Merkle tree by RFC 6962 section 2.1, with sha256. */
export const HASH_BYTES = 32;

const LEAF_PREFIX = Buffer.of(0);
const NODE_PREFIX = Buffer.of(1);

/**
 * Hashes the concatenated parts. The digest is taken as latin1 text and converted to bytes, because `createHash`, or
 * `hash` with a Buffer as its output, takes twice as long.
 */
function sha256(...parts: Uint8Array[]): Buffer {
  return Buffer.from(hash("sha256", Buffer.concat(parts), "binary"), "latin1");
}

/** Root of the tree without leaves. */
export const EMPTY_ROOT: Buffer = sha256();

/** Hash of a leaf's bytes. */
export const leafHash = (entry: Uint8Array): Buffer => sha256(LEAF_PREFIX, entry);

/** Hash of two subtrees. */
export const nodeHash = (left: Uint8Array, right: Uint8Array): Buffer => sha256(NODE_PREFIX, left, right);

/** Returns the largest power of two below n (n > 1), at which RFC 6962 splits a range of n leaves. */
export function splitPoint(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/**
 * Returns the root of the tree over the hashes [start, end): leaf hashes, or the roots of complete subtrees of one
 * height, which are combined in the same way. Without hashes the root is EMPTY_ROOT.
 */
export function computeRoot(hashes: readonly Uint8Array[], start = 0, end = hashes.length): Buffer {
  const n = end - start;
  if (n === 0) return EMPTY_ROOT;
  if (n === 1) return Buffer.from(hashes[start]!);
  const middle = start + splitPoint(n);
  return nodeHash(computeRoot(hashes, start, middle), computeRoot(hashes, middle, end));
}

export const sameHash = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
