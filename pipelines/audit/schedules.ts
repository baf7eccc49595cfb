import { createHmac } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { SampleLine } from "../record/evidence.ts";
import { blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { Check, type Finding } from "./findings.ts";

const MINUTES_PER_BLOCK = 360;
const BLOCKS_PER_DAY = 4;
const BLIND_BELOW = 64;

/**
 * Checks that calls were made at the times, and from the kinds of wallets, of the salted plan of their day. The plan's
 * hash was published before the day; its salt is in the first leaf after the day (verification-method.md, section 5).
 * The planner's code is not used here.
 */
export class ScheduleAudit {
  readonly salts = new Check("salts of days, opened");
  readonly calls = new Check("calls against the opened plan");
  readonly #salt = new Map<string, Buffer>();

  constructor(fold: PublishedFold) {
    for (const [day, { salt_hash, salt }] of fold.schedules) {
      if (salt === null) {
        this.salts.open(`the salt of ${day} is not opened yet`);
        continue;
      }
      const bytes = Buffer.from(salt, "hex");
      const got = sha256hex(bytes);
      if (got === salt_hash) this.salts.ok();
      else this.salts.bad({ key: `schedule of ${day}`, expected: salt_hash, got });
      this.#salt.set(day, bytes);
    }
  }

  /** Checks one sample of the evidence. */
  add(line: SampleLine): void {
    const planned = line.kind === 1 || line.planned === "free" || line.planned === "paid";
    const [block, minute] = String(line.slot).split("/").map(Number);
    if (!planned || block === undefined || minute === undefined || !Number.isInteger(block)) return;
    const day = dayOf(blockStart(block));
    const salt = this.#salt.get(day);
    if (!salt) {
      this.calls.open(`the salt of ${day} is not opened yet`);
      return;
    }
    const bytes = createHmac("sha256", salt).update(line.capability_id).digest();
    const b = block - blockOf(dayStart(day));
    const want = ((bytes[8]! << 8) | bytes[9]!) % MINUTES_PER_BLOCK;
    const key = `${line.obs_id} of ${line.capability_id}`;
    if (minute !== want) {
      this.calls.bad({ key, expected: `minute ${want} of ${day}`, got: `minute ${minute}` });
    } else if (line.kind === 1 && !fitsPlan(line, bytes, b)) {
      const got = `${line.blind ? "a blind" : "a known"} wallet in block ${b}${line.retest ? " (re-test)" : ""}`;
      this.calls.bad({ key, expected: `the wallet and block of ${day}'s plan`, got });
    } else this.calls.ok();
  }

  /** Counts the lines of an evidence file that could not be read. */
  unread(lines: number): void {
    this.calls.notRun("lines of evidence files that could not be read", lines);
  }

  get findings(): Finding[] {
    return [this.salts.finding, this.calls.finding];
  }
}

/**
 * Does a paid call fit the plan? A re-test is always blind; another call is one of every block, or the one of the day.
 */
function fitsPlan({ blind, retest }: SampleLine, bytes: Buffer, b: number): boolean {
  if (retest === true) return blind === true;
  const everyBlock = blind === bytes[2 + b]! < BLIND_BELOW;
  const daily = bytes[0]! % BLOCKS_PER_DAY === b && blind === bytes[1]! < BLIND_BELOW;
  return everyBlock || daily;
}
