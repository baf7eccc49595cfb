/**
 * Number of hashes in a full tile, and of leaves in a full entry bundle (C2SP tlog-tiles). Narrower ones, at the right
 * edge of the tree, are partial.
 */
export const TILE_WIDTH = 256;
/**
 * Number of leaves under one full tile of level 1. They are also published together in one file, a segment of the
 * tree.
 */
export const SEGMENT_LEAVES = TILE_WIDTH * TILE_WIDTH;

/** Formats a tile index as a path: 1234067 is `x001/x234/067`. */
function indexPath(n: number): string {
  if (!Number.isSafeInteger(n) || n < 0) throw new RangeError(`not a tile index: ${n}`);
  const groups = [n % 1000];
  for (let rest = Math.floor(n / 1000); rest > 0; rest = Math.floor(rest / 1000)) groups.unshift(rest % 1000);
  const digits = groups.map((group) => String(group).padStart(3, "0"));
  return digits.map((group, i) => (i < digits.length - 1 ? `x${group}` : group)).join("/");
}

const partialSuffix = (width: number): string => {
  if (!Number.isInteger(width) || width < 1 || width > TILE_WIDTH) throw new RangeError(`not a tile width: ${width}`);
  return width === TILE_WIDTH ? "" : `.p/${width}`;
};

/** Returns `tile/<level>/<n>[.p/<width>]`, the path of a tile with `width` hashes, each over 256^level leaves. */
export const tilePath = (level: number, n: number, width: number = TILE_WIDTH): string =>
  `tile/${level}/${indexPath(n)}${partialSuffix(width)}`;

/** Returns `tile/entries/<n>[.p/<width>]`, the path of the leaves under tile n of level 0. */
export const entriesPath = (n: number, width: number = TILE_WIDTH): string =>
  `tile/entries/${indexPath(n)}${partialSuffix(width)}`;

/**
 * For one tile level of a tree of `size` leaves, returns the number of full tiles, and the number of hashes in the
 * partial tile after them.
 */
export function edgeOf(size: number, level: number): { full: number; width: number } {
  const hashes = Math.floor(size / TILE_WIDTH ** level);
  return { full: Math.floor(hashes / TILE_WIDTH), width: hashes % TILE_WIDTH };
}

/** Returns the number of tile levels that hold at least one hash in a tree of `size` leaves. */
export function levelsOf(size: number): number {
  let levels = 0;
  for (let rest = size; rest > 0; rest = Math.floor(rest / TILE_WIDTH)) levels++;
  return levels;
}
