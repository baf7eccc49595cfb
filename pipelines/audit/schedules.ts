import { createHmac } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { SampleLine } from "../record/evidence.ts";
import { blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { Check, type Finding } from "./findings.ts";

const MINUTES_PER_BLOCK = 360;
const BLOCKS_PER_DAY = 4;
const BLIND_BYTE_BELOW = 64;

/**
 * Checks that calls were made at the times, and from the kinds of wallets, that follow from the secret salt of their
 * day. The salt's hash was published before the day, and the salt in the first leaf after the day
 * (verification-method.md, section 5). The planner's code is not used here.
 */
export class ScheduleAudit {
  readonly salts = new Check("salts of days, opened");
  readonly calls = new Check("calls against the opened plan");
  readonly #saltByDay = new Map<string, Buffer>();

  constructor(fold: PublishedFold) {
    for (const [day, { salt_hash, salt }] of fold.schedules) {
      if (salt === null) {
        this.salts.countOpen(`the salt of ${day} is not opened yet`);
        continue;
      }
      const bytes = Buffer.from(salt, "hex");
      const got = sha256hex(bytes);
      if (got === salt_hash) this.salts.countOk();
      else this.salts.addProblem({ key: `schedule of ${day}`, expected: salt_hash, got });
      this.#saltByDay.set(day, bytes);
    }
  }

  /** Checks one sample of the evidence. */
  add(line: SampleLine): void {
    const isPlanned = line.kind === 1 || line.planned === "free" || line.planned === "paid";
    const [block, minute] = String(line.slot).split("/").map(Number);
    if (!isPlanned || block === undefined || minute === undefined || !Number.isInteger(block)) return;
    const day = dayOf(blockStart(block));
    const salt = this.#saltByDay.get(day);
    if (!salt) {
      this.calls.countOpen(`the salt of ${day} is not opened yet`);
      return;
    }
    const planBytes = createHmac("sha256", salt).update(line.capability_id).digest();
    const blockOfDay = block - blockOf(dayStart(day));
    const expectedMinute = ((planBytes[8]! << 8) | planBytes[9]!) % MINUTES_PER_BLOCK;
    const key = `${line.obs_id} of ${line.capability_id}`;
    if (minute !== expectedMinute) {
      this.calls.addProblem({ key, expected: `minute ${expectedMinute} of ${day}`, got: `minute ${minute}` });
    } else if (line.kind === 1 && !fitsPlan(line, planBytes, blockOfDay)) {
      const got = `${line.blind ? "a blind" : "a known"} wallet in block ${blockOfDay}${line.retest ? " (re-test)" : ""}`;
      this.calls.addProblem({ key, expected: `the wallet and block of ${day}'s plan`, got });
    } else this.calls.countOk();
  }

  /** Counts the lines of an evidence file that could not be read. */
  noteUnreadLines(lines: number): void {
    this.calls.countNotRun("lines of evidence files that could not be read", lines);
  }

  get findings(): Finding[] {
    return [this.salts.finding, this.calls.finding];
  }
}

/**
 * Returns whether a paid call fits the plan. A re-test (a repetition after a failure) is always blind, that is paid
 * from an unknown wallet. Any other call is that of a block (six hours) while every block is called, or the one daily
 * call.
 */
function fitsPlan({ blind, retest }: SampleLine, planBytes: Buffer, blockOfDay: number): boolean {
  if (retest === true) return blind === true;
  const fitsEveryBlock = blind === planBytes[2 + blockOfDay]! < BLIND_BYTE_BELOW;
  const fitsDaily = planBytes[0]! % BLOCKS_PER_DAY === blockOfDay && blind === planBytes[1]! < BLIND_BYTE_BELOW;
  return fitsEveryBlock || fitsDaily;
}
