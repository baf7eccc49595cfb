/** Largest number of changes between two near names; a short name may have one for each three letters. */
const MAX_CHANGES = 3;

/**
 * Returns the name that a wrong name was probably meant to be: the one that the fewest changes lead to (a letter too
 * many, missing, replaced, or swapped with the next one); null if none is near.
 */
export function nearName(wrongName: string, names: readonly string[]): string | null {
  let nearest: string | null = null;
  let fewestChanges = Math.min(MAX_CHANGES, Math.max(1, Math.floor(wrongName.length / 3))) + 1;
  for (const name of names) {
    // A difference in length needs as many changes. This also bounds the work for a very long wrong name.
    if (Math.abs(name.length - wrongName.length) >= fewestChanges) continue;
    const changes = countChanges(wrongName, name);
    if (changes < fewestChanges) [nearest, fewestChanges] = [name, changes];
  }
  return nearest;
}

/** Returns the optimal string alignment distance of two texts. */
function countChanges(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, j) => j);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = last[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      const swapped = isSwap ? beforeLast[j - 2]! + 1 : replaced;
      row.push(Math.min(replaced, swapped, last[j]! + 1, row[j - 1]! + 1));
    }
    [beforeLast, last] = [last, row];
  }
  return last[to.length]!;
}
