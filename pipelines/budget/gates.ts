import { deffOf, lower } from "../3-grade/bounds.ts";
import type { PartSums } from "../3-grade/sums.ts";

/** Paid blocks that are looked ahead; no letter of the method needs so many. */
const MOST = 400;

/**
 * Further blocks without a failure until the lower bound of a part reaches a gate (grading-method.md sections 2 and 4),
 * or null when not within 400. From nothing: 36 for the 0.90 of an A; 78 in all after one failure, 93 after two.
 */
export function blocksToGate({ w, s, m, bad, starts }: PartSums, gate: number): number | null {
  for (let n = 0; n <= MOST; n++) {
    const deff = deffOf(bad, starts, m + n);
    if ((lower((s + n) / deff, (w + n) / deff) ?? 0) >= gate) return n;
  }
  return null;
}
