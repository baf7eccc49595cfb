import { type TreeNumber, toTreeNumber, verifyInclusion } from "../../../infra/tree/proof.ts";

/**
 * Is the complete subtree over leaves [start, end) with this hash part of the tree? `end - start` is a power of two and
 * divides `start`. Once such subtrees are read as leaves, the tree above them has the same shape.
 */
export function verifySubtree(
  start: TreeNumber,
  end: TreeNumber,
  size: TreeNumber,
  hash: Uint8Array,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const [from, to, n] = [toTreeNumber(start), toTreeNumber(end), toTreeNumber(size)];
  if (from === null || to === null || n === null || from >= to || to > n) return false;
  const width = to - from;
  if ((width & (width - 1n)) !== 0n || from % width !== 0n) return false;
  return verifyInclusion(from / width, (n - 1n) / width + 1n, hash, proof, root);
}

export { inclusionProof, subtreeProof, verifyInclusion } from "../../../infra/tree/proof.ts";
