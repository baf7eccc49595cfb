import { round6 } from "./bounds.ts";
import { SAID } from "./packed.ts";
import { BAD_BELOW, WALL_ONE_IN } from "./params.ts";
import { PARTS, type PartSums, type Sums } from "./sums.ts";

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

/** Sums of one part over its blocks, in time order. */
class Part {
  #w = 0;
  #s = 0;
  #m = 0;
  #bad = 0;
  #starts = 0;
  #before = false;

  /** @param x mean of a block, null where it says nothing of this part */
  add(w: number, x: number | null): void {
    if (x === null) return;
    this.#m++;
    this.#w += w;
    this.#s += w * x;
    const bad = x < BAD_BELOW;
    if (bad) this.#bad++;
    if (bad && !this.#before) this.#starts++;
    this.#before = bad;
  }

  sums(): PartSums | null {
    if (this.#m === 0) return null;
    return { w: round6(this.#w), s: round6(this.#s), m: this.#m, bad: this.#bad, starts: this.#starts };
  }
}

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
    if (bits & SAID.answered) sums[at + ANSWERED]!++;
    if (bits & SAID.wall) sums[at + WALLS]!++;
    if (bits & SAID.honest) sums[at + HONEST]!++;
    if (bits & (SAID.honest | SAID.dishonest)) sums[at + TOLD]!++;
  }

  /** What a paid row says beside. @param outcome NaN where there is no ground truth */
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
    if (bits & SAID.fits) sums[at + FITS]!++;
    if (bits & (SAID.fits | SAID.misfits)) sums[at + CHECKED]!++;
    if (bits & SAID.honest) sums[at + PAID_HONEST]!++;
    if (bits & (SAID.honest | SAID.dishonest)) sums[at + PAID_TOLD]!++;
  }

  /** Sums of every part; the first floor(m/20) blocks with a wall are excused, in time order. */
  parts(): Pick<Sums, "parts" | "course" | "walled"> {
    const sums = this.#sums;
    const parts = PARTS.map((name) => ({ name, part: new Part() }));
    const [liveness, honesty, paidHonesty, deliveries, outcomes, schema] = parts.map(({ part }) => part);
    const course: number[] = [];
    let excusable = Math.floor(this.#seen() / WALL_ONE_IN);
    let walled = false;
    for (let at = 0; at < sums.length; at += WIDTH) {
      const n = sums[at + ROWS]!;
      if (n === 0) continue;
      const walls = sums[at + WALLS]!;
      const excused = walls > 0 && excusable-- > 0;
      walled ||= walls > 0 && !excused;
      liveness!.add(1, mean(sums[at + ANSWERED]!, excused ? n - walls : n));
      honesty!.add(1, mean(sums[at + HONEST]!, sums[at + TOLD]!));
      const paid = sums[at + PAID]!;
      if (paid === 0) continue;
      const w = sums[at + WEIGHT]! / paid;
      const delivery = mean(sums[at + DELIVERY]!, paid);
      const outcome = mean(sums[at + OUTCOME]!, sums[at + OUTCOMES]!);
      paidHonesty!.add(1, mean(sums[at + PAID_HONEST]!, sums[at + PAID_TOLD]!));
      deliveries!.add(w, delivery);
      outcomes!.add(w, outcome);
      schema!.add(w, mean(sums[at + FITS]!, sums[at + CHECKED]!));
      course.push(outcome ?? delivery!);
    }
    const found: Sums["parts"] = {};
    for (const { name, part } of parts) {
      const of = part.sums();
      if (of) found[name] = of;
    }
    return { parts: found, course, walled };
  }

  /** Blocks with a row. */
  #seen(): number {
    let seen = 0;
    for (let at = 0; at < this.#sums.length; at += WIDTH) if (this.#sums[at + ROWS]! > 0) seen++;
    return seen;
  }
}
