import { nodeHash, sameHash } from "../../../infra/tree/hash.ts";
import { allHashes, type Whole, whole } from "../../../infra/tree/proof.ts";

/**
 * Proofs of inclusion (RFC 6962 section 2.1.1, verified as in RFC 9162 section 2.1.3.2): what a stranger with a leaf asks of
 * the tree. The service makes them for receipts of POST /v1/web/evidence and never verifies one: that is done here.
 */
/** Is the leaf with this hash at `index` of the tree of `size` leaves with this root? */
export function verifyInclusion(
  index: Whole,
  size: Whole,
  leaf: Uint8Array,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const [at, n] = [whole(index), whole(size)];
  if (at === null || n === null || at >= n || !allHashes(proof, [leaf, root])) return false;
  let fn = at;
  let sn = n - 1n;
  let hash: Uint8Array = leaf;
  for (const sibling of proof) {
    if (sn === 0n) return false;
    if ((fn & 1n) === 1n || fn === sn) {
      hash = nodeHash(sibling, hash);
      for (; (fn & 1n) === 0n && fn !== 0n; fn >>= 1n) sn >>= 1n;
    } else {
      hash = nodeHash(hash, sibling);
    }
    fn >>= 1n;
    sn >>= 1n;
  }
  return sn === 0n && sameHash(hash, root);
}

/**
 * Is the complete subtree over leaves [start, end) with this hash part of the tree? `end - start` is a power of two and
 * divides `start`. Once such subtrees are read as leaves, the tree above them has the same shape.
 */
export function verifySubtree(
  start: Whole,
  end: Whole,
  size: Whole,
  hash: Uint8Array,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const [from, to, n] = [whole(start), whole(end), whole(size)];
  if (from === null || to === null || n === null || from >= to || to > n) return false;
  const width = to - from;
  if ((width & (width - 1n)) !== 0n || from % width !== 0n) return false;
  return verifyInclusion(from / width, (n - 1n) / width + 1n, hash, proof, root);
}

export { inclusionProof, subtreeProof } from "../../../infra/tree/proof.ts";
