import { HASH_BYTES, nodeHash, sameHash, splitPoint } from "./hash.ts";

/**
 * Creates proofs as in RFC 6962 section 2.1, and verifies them as in RFC 9162 sections 2.1.3.2 and 2.1.4.2 with two
 * more rules: a tree of size 0 proves nothing, and every hash has 32 bytes. A verifier returns false for a wrong proof
 * and never throws.
 */

/** A size or index in a proof. It may be a bigint, because proofs of other logs can exceed 2^53. */
export type TreeNumber = number | bigint;

const TREE_NUMBER_LIMIT = 1n << 64n;

/** Converts a size or index to a bigint; null when it is negative, fractional, or larger than 64 bits. */
export function toTreeNumber(value: TreeNumber): bigint | null {
  if (typeof value === "number" && !Number.isSafeInteger(value)) return null;
  const big = BigInt(value);
  return big >= 0n && big < TREE_NUMBER_LIMIT ? big : null;
}

export const areHashes = (...lists: (readonly Uint8Array[])[]): boolean =>
  lists.every((list) => list.every((hash) => hash.length === HASH_BYTES));

/** Reports whether the first `size1` leaves of the tree (size2, root2) are the tree (size1, root1). */
export function verifyConsistency(
  size1: TreeNumber,
  size2: TreeNumber,
  root1: Uint8Array,
  root2: Uint8Array,
  proof: readonly Uint8Array[],
): boolean {
  const [m, n] = [toTreeNumber(size1), toTreeNumber(size2)];
  if (m === null || n === null || m === 0n || m > n || !areHashes(proof, [root1, root2])) return false;
  if (m === n) return proof.length === 0 && sameHash(root1, root2);
  // When size1 is a power of two, root1 is itself a node of the larger tree, so the proof leaves it out.
  const steps = (m & (m - 1n)) === 0n ? [root1, ...proof] : [...proof];
  if (proof.length === 0) return false;
  const roots = foldSteps(m, n, steps);
  return roots !== null && sameHash(roots.prefix, root1) && sameHash(roots.whole, root2);
}

/**
 * Computes from the nodes of a consistency proof from m to n leaves (RFC 9162 section 2.1.4.2) the root of the first m
 * leaves (`prefix`) and that of all n (`whole`); null when there are too many or too few nodes.
 */
function foldSteps(
  m: bigint,
  n: bigint,
  steps: readonly Uint8Array[],
): { prefix: Uint8Array; whole: Uint8Array } | null {
  let fn = m - 1n;
  let sn = n - 1n;
  for (; (fn & 1n) === 1n; fn >>= 1n) sn >>= 1n;
  let prefix: Uint8Array = steps[0]!;
  let whole: Uint8Array = steps[0]!;
  for (const step of steps.slice(1)) {
    if (sn === 0n) return null;
    if ((fn & 1n) === 1n || fn === sn) {
      prefix = nodeHash(step, prefix);
      whole = nodeHash(step, whole);
      for (; (fn & 1n) === 0n && fn !== 0n; fn >>= 1n) sn >>= 1n;
    } else {
      whole = nodeHash(whole, step);
    }
    fn >>= 1n;
    sn >>= 1n;
  }
  return sn === 0n ? { prefix, whole } : null;
}

/**
 * Computes, from the nodes that {@link prefixProof} creates, the root of the first `size1` leaves of the tree (size2,
 * root2). Unlike a consistency proof this needs no other root for `size1`, so it shows the root that the larger tree
 * has at that size, even when the log signed another one.
 * @returns null when the nodes do not lead to root2, or the sizes are not 0 < size1 < size2
 */
export function provenPrefix(
  size1: TreeNumber,
  size2: TreeNumber,
  root2: Uint8Array,
  nodes: readonly Uint8Array[],
): Uint8Array | null {
  const [m, n] = [toTreeNumber(size1), toTreeNumber(size2)];
  if (m === null || n === null || m === 0n || m >= n || nodes.length === 0 || !areHashes(nodes, [root2])) return null;
  const roots = foldSteps(m, n, nodes);
  return roots && sameHash(roots.whole, root2) ? roots.prefix : null;
}

/** Reports whether the leaf with this hash is at `index` in the tree of `size` leaves with this root. */
export function verifyInclusion(
  index: TreeNumber,
  size: TreeNumber,
  leaf: Uint8Array,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const [leafIndex, n] = [toTreeNumber(index), toTreeNumber(size)];
  if (leafIndex === null || n === null || leafIndex >= n || !areHashes(proof, [leaf, root])) return false;
  let fn = leafIndex;
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

/** Reads the hash of a complete subtree: leaves [index * 2^level, (index + 1) * 2^level). */
export type NodeReader = (level: number, index: number) => Promise<Uint8Array>;

/**
 * Computes the hash of leaves [start, end), split as RFC 6962 does. `start` must be a position at which RFC 6962
 * splits the tree.
 */
export async function rangeHash(start: number, end: number, node: NodeReader): Promise<Uint8Array> {
  const n = end - start;
  const level = Math.log2(n);
  if (Number.isInteger(level)) return node(level, start / n);
  const middle = start + splitPoint(n);
  return nodeHash(await rangeHash(start, middle, node), await rangeHash(middle, end, node));
}

const hashesOf = (ranges: [number, number][], node: NodeReader): Promise<Uint8Array[]> =>
  Promise.all(ranges.map(([start, end]) => rangeHash(start, end, node)));

/** Creates the proof that the first `size1` leaves (at least one) are unchanged in the tree of `size2` leaves. */
export async function consistencyProof(size1: number, size2: number, node: NodeReader): Promise<Uint8Array[]> {
  if (size1 < 1 || size1 > size2) throw new RangeError(`no proof from ${size1} to ${size2}`);
  const ranges: [number, number][] = [];
  let [from, to] = [0, size2];
  while (size1 !== to) {
    const middle = from + splitPoint(to - from);
    if (size1 <= middle) {
      ranges.unshift([middle, to]);
      to = middle;
    } else {
      ranges.unshift([from, middle]);
      from = middle;
    }
  }
  if (from > 0) ranges.unshift([from, to]);
  return hashesOf(ranges, node);
}

/**
 * Creates the nodes from which {@link provenPrefix} computes the root of the first `size1` leaves (0 < size1 < size2):
 * those of the consistency proof, and before them the hash of the prefix where it is one complete subtree, which a
 * consistency proof leaves out.
 */
export async function prefixProof(size1: number, size2: number, node: NodeReader): Promise<Uint8Array[]> {
  const nodes = await consistencyProof(size1, size2, node);
  const level = Math.log2(size1);
  return Number.isInteger(level) ? [await node(level, 0), ...nodes] : nodes;
}

/**
 * Creates the proof that the complete subtree [start, end) is in the tree of `size` leaves; a leaf is the subtree of
 * width one.
 */
export async function subtreeProof(start: number, end: number, size: number, node: NodeReader): Promise<Uint8Array[]> {
  const width = end - start;
  if (!Number.isInteger(Math.log2(width)) || start % width !== 0 || start < 0 || end > size) {
    throw new RangeError(`[${start}, ${end}) is no complete subtree of a tree of ${size}`);
  }
  const ranges: [number, number][] = [];
  for (let [from, to] = [0, size]; to - from > width; ) {
    const middle = from + splitPoint(to - from);
    if (start < middle) {
      ranges.unshift([middle, to]);
      to = middle;
    } else {
      ranges.unshift([from, middle]);
      from = middle;
    }
  }
  return hashesOf(ranges, node);
}

/** Creates the proof that leaf `index` is in the tree of `size` leaves (RFC 6962 section 2.1.1). */
export const inclusionProof = (index: number, size: number, node: NodeReader): Promise<Uint8Array[]> =>
  subtreeProof(index, index + 1, size, node);
