import { round6 } from "./bounds.ts";
import { FACTS } from "./packed.ts";
import { BLOCKS_PER_EXCUSED_WALL } from "./params.ts";
import { type BlockSample, type PartName, type Sums, sumParts } from "./sums.ts";

/**
 * Places of a block's sums in the array: each block has SUMS_PER_BLOCK places. The sums before PAID are over all rows
 * of the block, those from PAID on over its paid rows.
 */
const ROWS = 0;
const ANSWERED = 1;
const WALLS = 2;
const HONEST = 3;
const HONEST_KNOWN = 4;
const PAID = 5;
const WEIGHT = 6;
const DELIVERY = 7;
const OUTCOME = 8;
const OUTCOMES = 9;
const FITS_SCHEMA = 10;
const SCHEMA_CHECKED = 11;
const PAID_HONEST = 12;
const PAID_HONEST_KNOWN = 13;
const SUMS_PER_BLOCK = 14;

const mean = (sum: number, n: number): number | null => (n > 0 ? round6(sum / n) : null);

/**
 * Sums over the six-hour blocks of one endpoint. A block is one sample, however many calls it has. The object is reused
 * for the next endpoint after {@link clear}.
 */
export class BlockSums {
  readonly #sums: Float64Array;
  /** @param count number of blocks in the window */
  constructor(count: number) {
    this.#sums = new Float64Array(count * SUMS_PER_BLOCK);
  }

  clear(): void {
    this.#sums.fill(0);
  }

  /** Adds a row to its block. @param block index in the window @param bits the row's bits of {@link FACTS} */
  add(block: number, bits: number): void {
    const base = block * SUMS_PER_BLOCK;
    const sums = this.#sums;
    sums[base + ROWS]!++;
    if (bits & FACTS.answered) sums[base + ANSWERED]!++;
    if (bits & FACTS.wall) sums[base + WALLS]!++;
    if (bits & FACTS.honest) sums[base + HONEST]!++;
    if (bits & (FACTS.honest | FACTS.dishonest)) sums[base + HONEST_KNOWN]!++;
  }

  /** Adds the further sums of a paid row, after {@link add}. @param outcome NaN if the right answer is not known */
  addPaid(block: number, bits: number, w: number, delivery: number, outcome: number): void {
    const base = block * SUMS_PER_BLOCK;
    const sums = this.#sums;
    sums[base + PAID]!++;
    sums[base + WEIGHT]! += w;
    sums[base + DELIVERY]! += delivery;
    if (!Number.isNaN(outcome)) {
      sums[base + OUTCOME]! += outcome;
      sums[base + OUTCOMES]!++;
    }
    if (bits & FACTS.fits) sums[base + FITS_SCHEMA]!++;
    if (bits & (FACTS.fits | FACTS.misfits)) sums[base + SCHEMA_CHECKED]!++;
    if (bits & FACTS.honest) sums[base + PAID_HONEST]!++;
    if (bits & (FACTS.honest | FACTS.dishonest)) sums[base + PAID_HONEST_KNOWN]!++;
  }

  /**
   * Computes the sums of every part of a grade (PARTS in sums.ts). Of the blocks with a wall (a bot check, 403 or
   * 429) the first in time order are excused, one for each 20 blocks.
   */
  sumParts(): Pick<Sums, "parts" | "course" | "walled"> {
    const sums = this.#sums;
    const samples: Record<PartName, BlockSample[]> = {
      ...{ liveness: [], honesty: [], paid_honesty: [], delivery: [], outcome: [], schema_conformance: [] },
    };
    const course: number[] = [];
    let excusableBlocks = Math.floor(this.#countBlocks() / BLOCKS_PER_EXCUSED_WALL);
    let walled = false;
    for (let base = 0; base < sums.length; base += SUMS_PER_BLOCK) {
      const n = sums[base + ROWS]!;
      if (n === 0) continue;
      const walls = sums[base + WALLS]!;
      const isExcused = walls > 0 && excusableBlocks-- > 0;
      walled ||= walls > 0 && !isExcused;
      samples.liveness.push({ w: 1, x: mean(sums[base + ANSWERED]!, isExcused ? n - walls : n) });
      samples.honesty.push({ w: 1, x: mean(sums[base + HONEST]!, sums[base + HONEST_KNOWN]!) });
      const paid = sums[base + PAID]!;
      if (paid === 0) continue;
      const w = sums[base + WEIGHT]! / paid;
      const delivery = mean(sums[base + DELIVERY]!, paid);
      const outcome = mean(sums[base + OUTCOME]!, sums[base + OUTCOMES]!);
      samples.paid_honesty.push({ w: 1, x: mean(sums[base + PAID_HONEST]!, sums[base + PAID_HONEST_KNOWN]!) });
      samples.delivery.push({ w, x: delivery });
      samples.outcome.push({ w, x: outcome });
      samples.schema_conformance.push({ w, x: mean(sums[base + FITS_SCHEMA]!, sums[base + SCHEMA_CHECKED]!) });
      course.push(outcome ?? delivery!);
    }
    return { parts: sumParts(samples), course, walled };
  }

  /** Counts the blocks that have a row. */
  #countBlocks(): number {
    let count = 0;
    for (let base = 0; base < this.#sums.length; base += SUMS_PER_BLOCK) if (this.#sums[base + ROWS]! > 0) count++;
    return count;
  }
}
