import type { Positions } from "./view.ts";

/** Did any position go back? A partition that is not named any more counts as going back. */
export function wentBack(before: Positions, after: Positions): boolean {
  for (const [topic, partitions] of Object.entries(before)) {
    for (const [partition, offset] of Object.entries(partitions)) {
      if ((after[topic]?.[partition] ?? -1) < offset) return true;
    }
  }
  return false;
}
