import { round6 } from "./bounds.ts";
import { FACTS } from "./packed.ts";
import { WALL_ONE_IN } from "./params.ts";
import { type BlockSample, type PartName, partsOf, type Sums } from "./sums.ts";

/** Sums of a block, one after the other in one array; the first ones are of all rows, those from PAID on of paid ones. */
const ROWS = 0;
const ANSWERED = 1;
const WALLS = 2;
const HONEST = 3;
const TOLD = 4;
const PAID = 5;
const WEIGHT = 6;
const DELIVERY = 7;
const OUTCOME = 8;
const OUTCOMES = 9;
const FITS = 10;
const CHECKED = 11;
const PAID_HONEST = 12;
const PAID_TOLD = 13;
const WIDTH = 14;

const mean = (sum: number, n: number): number | null => (n > 0 ? round6(sum / n) : null);

/** Six-hour blocks of one endpoint: however often we looked, a block is one sample. Used again for the next endpoint. */
export class Blocks {
  readonly #sums: Float64Array;
  /** @param count blocks of the window */
  constructor(count: number) {
    this.#sums = new Float64Array(count * WIDTH);
  }

  clear(): void {
    this.#sums.fill(0);
  }

  add(block: number, bits: number): void {
    const at = block * WIDTH;
    const sums = this.#sums;
    sums[at + ROWS]!++;
    if (bits & FACTS.answered) sums[at + ANSWERED]!++;
    if (bits & FACTS.wall) sums[at + WALLS]!++;
    if (bits & FACTS.honest) sums[at + HONEST]!++;
    if (bits & (FACTS.honest | FACTS.dishonest)) sums[at + TOLD]!++;
  }

  /** Adds the sums of a paid row, besides {@link add}. @param outcome NaN where there is no ground truth */
  addPaid(block: number, bits: number, w: number, delivery: number, outcome: number): void {
    const at = block * WIDTH;
    const sums = this.#sums;
    sums[at + PAID]!++;
    sums[at + WEIGHT]! += w;
    sums[at + DELIVERY]! += delivery;
    if (!Number.isNaN(outcome)) {
      sums[at + OUTCOME]! += outcome;
      sums[at + OUTCOMES]!++;
    }
    if (bits & FACTS.fits) sums[at + FITS]!++;
    if (bits & (FACTS.fits | FACTS.misfits)) sums[at + CHECKED]!++;
    if (bits & FACTS.honest) sums[at + PAID_HONEST]!++;
    if (bits & (FACTS.honest | FACTS.dishonest)) sums[at + PAID_TOLD]!++;
  }

  /** Sums of every part; the first floor(m/20) blocks with a wall are excused, in time order. */
  parts(): Pick<Sums, "parts" | "course" | "walled"> {
    const sums = this.#sums;
    const samples: Record<PartName, BlockSample[]> = {
      ...{ liveness: [], honesty: [], paid_honesty: [], delivery: [], outcome: [], schema_conformance: [] },
    };
    const course: number[] = [];
    let excusable = Math.floor(this.#seen() / WALL_ONE_IN);
    let walled = false;
    for (let at = 0; at < sums.length; at += WIDTH) {
      const n = sums[at + ROWS]!;
      if (n === 0) continue;
      const walls = sums[at + WALLS]!;
      const excused = walls > 0 && excusable-- > 0;
      walled ||= walls > 0 && !excused;
      samples.liveness.push({ w: 1, x: mean(sums[at + ANSWERED]!, excused ? n - walls : n) });
      samples.honesty.push({ w: 1, x: mean(sums[at + HONEST]!, sums[at + TOLD]!) });
      const paid = sums[at + PAID]!;
      if (paid === 0) continue;
      const w = sums[at + WEIGHT]! / paid;
      const delivery = mean(sums[at + DELIVERY]!, paid);
      const outcome = mean(sums[at + OUTCOME]!, sums[at + OUTCOMES]!);
      samples.paid_honesty.push({ w: 1, x: mean(sums[at + PAID_HONEST]!, sums[at + PAID_TOLD]!) });
      samples.delivery.push({ w, x: delivery });
      samples.outcome.push({ w, x: outcome });
      samples.schema_conformance.push({ w, x: mean(sums[at + FITS]!, sums[at + CHECKED]!) });
      course.push(outcome ?? delivery!);
    }
    return { parts: partsOf(samples), course, walled };
  }

  /** Blocks with a row. */
  #seen(): number {
    let seen = 0;
    for (let at = 0; at < this.#sums.length; at += WIDTH) if (this.#sums[at + ROWS]! > 0) seen++;
    return seen;
  }
}
