import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { base64, fromBase64 } from "../client/bytes.ts";
import { BadObject, type Get, leafHash, nodeHash, type Progress, readBundleLeaves } from "./objects.ts";

/**
 * Largest number of entry bundles (files of 256 leaves of the log) that are read for one card: 16,384 leaves, some 25
 * MB.
 */
const MAX_BUNDLES = 64;

/** Place of a card (signed grade) in the tree of a proven checkpoint. */
export interface CardPlace {
  /** Position of the card's leaf (entry of the log), from 0. */
  index: number;
  /** Number of leaves of the tree. */
  size: number;
  /** Root of the tree, base64. */
  root: string;
  /** Inclusion proof of the card's leaf, hashes in base64. */
  proof: readonly string[];
}

/** What the tree contains after a card's leaf. */
export interface LaterLeaves {
  leafCount: number;
  bundleCount: number;
  /** Last leaf with a newer headline card (the card that the service shows) of this endpoint; null: none. */
  newerLeaf: number | null;
  /** Number of corrections, disputes and reinstatements of this endpoint after the card. */
  correctionCount: number;
}

/** Returns the left siblings in an inclusion proof, from the leaf up: the hashes of the subtrees before the leaf. */
function leftSiblings({ index, size, proof }: CardPlace): Uint8Array[] {
  const left: Uint8Array[] = [];
  let [node, lastNode] = [BigInt(index), BigInt(size - 1)];
  for (const text of proof) {
    if ((node & 1n) === 1n || node === lastNode) {
      left.push(fromBase64(text)!);
      for (; (node & 1n) === 0n && node !== 0n; node >>= 1n) lastNode >>= 1n;
    }
    [node, lastNode] = [node >> 1n, lastNode >> 1n];
  }
  return left;
}

/**
 * Computes the root hash of the tree from the hashes of its leaves from `index` to its end (`hashes`) and of the
 * subtrees before them (`left`). The result is the proven root only if these are all leaves from the card's to the end.
 */
async function rootOf(
  { index, size }: CardPlace,
  left: Uint8Array[],
  hashes: readonly Uint8Array[],
): Promise<Uint8Array> {
  const hashRange = async (start: number, end: number): Promise<Uint8Array> => {
    if (end <= index) return left.pop()!;
    if (end - start === 1) return hashes[start - index]!;
    let width = 1;
    while (width * 2 < end - start) width *= 2;
    const leftHash = await hashRange(start, start + width);
    return nodeHash(leftHash, await hashRange(start + width, end));
  };
  return hashRange(0, size);
}

/**
 * Reads the leaves of entry bundle `n`; null when it was not given. The last bundle of a tree may be partial; if the
 * partial bundle is gone, the full bundle that replaced it is read.
 */
async function readLeaves(get: Get, n: number, size: number): Promise<Uint8Array[] | null> {
  const width = Math.min(TILE_WIDTH, size - n * TILE_WIDTH);
  const leaves = await readBundleLeaves(get, entriesPath(n, width));
  if (leaves) return leaves.slice(0, width);
  return width < TILE_WIDTH ? ((await readBundleLeaves(get, entriesPath(n)))?.slice(0, width) ?? null) : null;
}

interface LeafFacts {
  kind?: unknown;
  headline?: unknown;
  capability_id?: unknown;
  card?: { capability_id?: unknown; computed_at?: unknown };
}

const CORRECTION_KINDS: readonly unknown[] = ["correction", "dispute", "reinstated"];

/**
 * Reads every leaf from the card's to the end of the tree, and proves that none is missing: the hashes of these leaves
 * and the inclusion proof of the card must lead to the root.
 * @returns a text with the reason, if the leaves are too many or were not given
 * @throws BadObject for leaves that are not those of the tree; SyntaxError for a leaf that is not JSON
 */
export async function readLaterLeaves(
  place: CardPlace,
  { cap, computedAt }: { cap: string; computedAt: unknown },
  get: Get,
  progress: Progress,
): Promise<LaterLeaves | string> {
  const { index, size } = place;
  const firstBundle = Math.floor(index / TILE_WIDTH);
  const bundleCount = Math.floor((size - 1) / TILE_WIDTH) - firstBundle + 1;
  if (bundleCount > MAX_BUNDLES)
    return `${size - index - 1} leaves follow it, more than a page reads; a mirror reads them`;
  const leafHashes: Uint8Array[] = [];
  let newerLeaf: number | null = null;
  let correctionCount = 0;
  for (let n = firstBundle; n < firstBundle + bundleCount; n++) {
    progress(n - firstBundle, bundleCount, "entry bundles");
    const leaves = await readLeaves(get, n, size);
    if (!leaves) return `the leaves behind it (${entriesPath(n)} and on) were not given`;
    for (const [i, leaf] of leaves.entries()) {
      const leafIndex = n * TILE_WIDTH + i;
      if (leafIndex < index) continue;
      leafHashes.push(await leafHash(leaf));
      const { kind, headline, capability_id, card } = JSON.parse(new TextDecoder().decode(leaf)) as LeafFacts;
      if (leafIndex === index) continue;
      if (kind === "grade" && headline === true && card?.capability_id === cap && card.computed_at !== computedAt) {
        newerLeaf = leafIndex;
      }
      if (CORRECTION_KINDS.includes(kind) && capability_id === cap) correctionCount++;
    }
  }
  if (leafHashes.length !== size - index)
    throw new BadObject(`${leafHashes.length} leaves came, and ${size - index} are behind`);
  const root = base64(await rootOf(place, leftSiblings(place), leafHashes));
  if (root !== place.root) throw new BadObject("the leaves behind the card lead to another root than the checkpoint's");
  return { leafCount: size - index - 1, bundleCount, newerLeaf, correctionCount };
}
