import { createHash } from "node:crypto";

/** RFC 6962 section 2.1 word for word, slow and independent of the code under test. */
export const naiveLeaf = (entry: Uint8Array): Buffer =>
  createHash("sha256")
    .update(Buffer.concat([Buffer.from([0]), entry]))
    .digest();

export function naiveRoot(leaves: readonly Buffer[]): Buffer {
  if (leaves.length === 0) return createHash("sha256").update("").digest();
  if (leaves.length === 1) return leaves[0]!;
  const k = 2 ** Math.ceil(Math.log2(leaves.length) - 1);
  return createHash("sha256")
    .update(Buffer.concat([Buffer.from([1]), naiveRoot(leaves.slice(0, k)), naiveRoot(leaves.slice(k))]))
    .digest();
}

/** PATH(m, D[n]) of section 2.1.1. */
export function naivePath(m: number, leaves: readonly Buffer[]): Buffer[] {
  if (leaves.length <= 1) return [];
  const k = 2 ** Math.ceil(Math.log2(leaves.length) - 1);
  return m < k
    ? [...naivePath(m, leaves.slice(0, k)), naiveRoot(leaves.slice(k))]
    : [...naivePath(m - k, leaves.slice(k)), naiveRoot(leaves.slice(0, k))];
}

/** SUBPROOF(m, D[n], b) of section 2.1.2; a consistency proof is SUBPROOF(m, D[n], true). */
export function naiveConsistency(m: number, leaves: readonly Buffer[], b = true): Buffer[] {
  if (m === leaves.length) return b ? [] : [naiveRoot(leaves)];
  const k = 2 ** Math.ceil(Math.log2(leaves.length) - 1);
  return m <= k
    ? [...naiveConsistency(m, leaves.slice(0, k), b), naiveRoot(leaves.slice(k))]
    : [...naiveConsistency(m - k, leaves.slice(k), false), naiveRoot(leaves.slice(0, k))];
}

/** n distinct leaf hashes. */
export const naiveLeaves = (n: number): Buffer[] => Array.from({ length: n }, (_, i) => naiveLeaf(Buffer.from(`${i}`)));
