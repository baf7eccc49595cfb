import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Logger, Metrics } from "../../../infra/telemetry.ts";
import { createCorrectionDraft } from "../../corrections/correct.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { CHECKERS } from "../../record/classes.ts";
import { idOf } from "../../record/ids.ts";
import type { ClassCall, FailedClass, Memory } from "../../record/memory.ts";
import { addDays, dayOf, rfc3339 } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { Hosts } from "../hosts.ts";
import type { Recorder } from "../recorder.ts";

/**
 * The questions of a class (a kind of questions with known answers) count as wrong when at least this many payees
 * were asked on a day and none passed.
 */
const MIN_PAYEES = 3;
/** Number of closed days that are checked, so that days on which this process did not run are checked later. */
const DAYS_BACK = 7;
/** Largest number of corrections in one append. */
const CORRECTIONS_PER_APPEND = 200;
/**
 * Largest number of withdrawn calls that are remembered until the lake (the database of the log's rows) has loaded
 * their corrections.
 */
const MAX_REMEMBERED = 100_000;

export interface ClassWithdrawalsParts {
  memory: Pick<Memory, "failedClasses" | "callsOfClass">;
  recorder: Recorder;
  hosts: Pick<Hosts, "owns">;
  metrics: Metrics;
  logger: Pick<Logger, "error">;
}

/**
 * Makes the correction that withdraws one call. The correction follows from the record alone, so that anybody with the
 * record can check it.
 */
function createCorrection({ intent, t }: ClassCall, failedClass: FailedClass, now: Date): BodyOf<"correction"> {
  const fault = "wrong_checker";
  const says =
    `not one answer passed on ${failedClass.day} of the ${failedClass.payees} payees that were asked questions of the class ` +
    `${failedClass.class}: the questions are taken for wrong, not the sellers`;
  const issued_at = rfc3339(now);
  const id = `cor_${idOf([intent, fault, says, issued_at])}`;
  return { id, record_id: intent, observed_at: t, grade_at: null, fault, says, issued_at };
}

/**
 * Withdraws the calls of a class that failed for all sellers, since then the questions are probably wrong, and not the
 * sellers. It does so for each closed UTC day on which at least {@link MIN_PAYEES} payees were asked and none passed.
 * The current day is only counted (metric `touchstone_observe_class_failing`, payees by class), since later calls may
 * pass.
 */
export class ClassWithdrawals {
  /**
   * Event ids of the intents (records written before a payment) of withdrawn calls. The lake may not have loaded the
   * corrections yet.
   */
  readonly #withdrawn = new BoundedMap<string, true>(MAX_REMEMBERED);

  constructor(private readonly parts: ClassWithdrawalsParts) {}

  /**
   * Withdraws the calls of all failed classes. Safe to repeat.
   * @returns number of corrections that were written
   * @throws NotConfirmed
   */
  async withdrawFailed(clock: Pick<Clock, "now">): Promise<number> {
    const { memory, metrics } = this.parts;
    const now = clock.now();
    const today = dayOf(now);
    const failedClasses = await memory.failedClasses(addDays(today, -DAYS_BACK), addDays(today, 1), MIN_PAYEES);
    for (const { name } of CHECKERS) {
      const failing = failedClasses.find((one) => one.class === name && one.day === today);
      metrics.gauge("touchstone_observe_class_failing", failing?.payees ?? 0, { class: name });
    }
    let writtenCount = 0;
    for (const failedClass of failedClasses)
      if (failedClass.day !== today) writtenCount += await this.#withdraw(failedClass, now);
    return writtenCount;
  }

  async #withdraw(failedClass: FailedClass, now: Date): Promise<number> {
    const { memory, hosts, recorder, logger, metrics } = this.parts;
    // Each observer withdraws only the calls to its own hosts, so that no record gets two corrections.
    const calls = (await memory.callsOfClass(failedClass.class, failedClass.day)).filter(
      ({ intent, url }) => !this.#withdrawn.has(intent) && hosts.owns(hostOf(url)),
    );
    if (calls.length === 0) return 0;
    logger.error(
      { ...failedClass, calls: calls.length },
      "a class failed everywhere: its calls of that day are withdrawn",
    );
    for (let i = 0; i < calls.length; i += CORRECTIONS_PER_APPEND) {
      const batch = calls.slice(i, i + CORRECTIONS_PER_APPEND);
      await recorder.append(
        batch.map((call) =>
          createCorrectionDraft("correction", call.cap, createCorrection(call, failedClass, now), now),
        ),
      );
      for (const { intent } of batch) this.#withdrawn.set(intent, true);
    }
    metrics.count("touchstone_observe_class_excused_total", { class: failedClass.class }, calls.length);
    return calls.length;
  }
}
