import { createHmac } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { SampleLine } from "../record/evidence.ts";
import { blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { Check, type Finding } from "./findings.ts";

const MINUTES_PER_BLOCK = 360;
const BLOCKS_PER_DAY = 4;
/** A call is paid from a blind (unknown) wallet if its byte of the plan is below this. */
const BLIND_BYTE_BELOW = 64;
/** The form of a slot in evidence lines: number of the block, and minute in it. */
const SLOT = /^(\d{1,6})\/(\d{1,3})$/;
/**
 * Largest difference between two clocks, ms, or between two times of a clock that was set in between. By this much a
 * call's time (an observer's clock) may precede the commitment to its plan (the publisher's clock), and lie before its
 * planned minute or after its block.
 */
const MAX_CLOCK_DIFFERENCE_MS = 5 * 60_000;

/**
 * Checks that the minute of each planned call's slot, and the kind of wallet that paid, follow from the secret salt of
 * the day, and that no call precedes the publication of the salt's hash. The salt itself is published after the day
 * (verification-method.md, section 5). This class does not use the planner's code, so that it also finds faults of the
 * planner.
 *
 * A call whose time does not fit its slot is counted as open, not as broken. The observer begins a call between its
 * planned minute and the end of its block. But if its clock is set or its machine sleeps during the call, an honest
 * record has another time.
 */
export class ScheduleAudit {
  readonly salts = new Check("salts of days, opened");
  readonly calls = new Check("calls against the opened plan");
  readonly #saltByDay = new Map<string, Buffer>();
  /** UTC day -> time at which the hash of its salt was published first, ms. */
  readonly #committedMs = new Map<string, number>();

  /** @param hasHoles whether leaves are unread: one of them may have published the hash of a day earlier */
  constructor(
    fold: PublishedFold,
    private readonly hasHoles = false,
  ) {
    for (const [day, { salt_hash, at, salt }] of fold.schedules) {
      this.#committedMs.set(day, Date.parse(at));
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

  /** Checks one sample of the evidence. Samples of calls that were not planned are ignored. */
  add(line: SampleLine): void {
    const isPlanned = line.kind === 1 || line.planned === "free" || line.planned === "paid";
    if (!isPlanned) return;
    const key = `${line.obs_id} of ${line.capability_id}`;
    const slot = typeof line.slot === "string" ? SLOT.exec(line.slot) : null;
    if (!slot) {
      this.calls.addProblem({
        key,
        expected: "a planned block and minute",
        got: `${JSON.stringify(line.slot)}`.slice(0, 80),
      });
      return;
    }
    const [block, minute] = slot.slice(1).map(Number) as [number, number];
    const day = dayOf(blockStart(block));
    const committedMs = this.#committedMs.get(day);
    if (committedMs !== undefined && Date.parse(line.t) < committedMs - MAX_CLOCK_DIFFERENCE_MS) {
      const expected = `a call after the plan of ${day} was committed to at ${new Date(committedMs).toISOString()}`;
      if (this.hasHoles) this.calls.countNotRun("leaves are unread that may have committed to their plan");
      else this.calls.addProblem({ key, expected, got: line.t });
      return;
    }
    const salt = this.#saltByDay.get(day);
    if (!salt) {
      this.calls.countOpen(`the salt of ${day} is not opened yet`);
      return;
    }
    const planBytes = createHmac("sha256", salt).update(line.capability_id).digest();
    const blockOfDay = block - blockOf(dayStart(day));
    const expectedMinute = ((planBytes[8]! << 8) | planBytes[9]!) % MINUTES_PER_BLOCK;
    if (minute !== expectedMinute) {
      this.calls.addProblem({ key, expected: `minute ${expectedMinute} of ${day}`, got: `minute ${minute}` });
    } else if (line.kind === 1 && !fitsPlan(line, planBytes, blockOfDay)) {
      const got = `${line.blind ? "a blind" : "a known"} wallet in block ${blockOfDay}${line.retest ? " (re-test)" : ""}`;
      this.calls.addProblem({ key, expected: `the wallet and block of ${day}'s plan`, got });
    } else if (!fitsSlot(line, block, minute)) {
      this.calls.countOpen(`${key}: its time ${line.t} is before its planned minute, or after its block`);
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

/** Returns whether a call's time lies between its planned minute and the end of its block, as far as clocks agree. */
function fitsSlot({ t }: SampleLine, block: number, minute: number): boolean {
  const earliestMs = blockStart(block).getTime() + minute * 60_000 - MAX_CLOCK_DIFFERENCE_MS;
  const latestMs = blockStart(block + 1).getTime() + MAX_CLOCK_DIFFERENCE_MS;
  return Date.parse(t) >= earliestMs && Date.parse(t) <= latestMs;
}

/**
 * Returns whether the wallet and the block of a paid call fit the plan. A re-test (a repetition after a failure) must
 * be blind: paid from an unknown wallet. Any other call must fit either the plan of an endpoint that is called in every
 * block (six hours), or that of one that is called once a day.
 */
function fitsPlan({ blind, retest }: SampleLine, planBytes: Buffer, blockOfDay: number): boolean {
  if (retest === true) return blind === true;
  const fitsEveryBlock = blind === planBytes[2 + blockOfDay]! < BLIND_BYTE_BELOW;
  const fitsDaily = planBytes[0]! % BLOCKS_PER_DAY === blockOfDay && blind === planBytes[1]! < BLIND_BYTE_BELOW;
  return fitsEveryBlock || fitsDaily;
}
