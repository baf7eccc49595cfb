import type { Clock } from "../../../infra/clock.ts";
import type { Logger, Metrics } from "../../../infra/telemetry.ts";
import { draftOf } from "../../corrections/correct.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { idOf } from "../../record/ids.ts";
import type { ClassCall, FailedClass, Memory } from "../../record/memory.ts";
import { addDays, dayOf, rfc3339 } from "../../record/time.ts";
import type { Hosts } from "../hosts.ts";
import type { Recorder } from "../recorder.ts";
import { hostOf } from "../urls.ts";

/** Payees of a class that have to fail, all of them, before the class is taken for what is wrong. */
export const LEAST_PAYEES = 3;
/** Closed days that are looked at: a machine that stood still makes up for it. */
const DAYS_BACK = 7;
/** Corrections in one append. */
const BATCH = 200;

export interface ExcuseParts {
  memory: Pick<Memory, "failedClasses" | "callsOfClass">;
  recorder: Recorder;
  hosts: Pick<Hosts, "owns">;
  metrics: Metrics;
  logger: Pick<Logger, "error">;
}

/** The word that one call is withdrawn. It follows from the record, so whoever has that finds the same calls. */
function correctionOf({ intent, t }: ClassCall, failed: FailedClass, now: Date): BodyOf<"correction"> {
  const fault = "wrong_checker";
  const says =
    `not one answer passed on ${failed.day} of the ${failed.payees} payees that were asked questions of the class ` +
    `${failed.class}: the questions are taken for wrong, not the sellers`;
  const issued_at = rfc3339(now);
  const id = `cor_${idOf([intent, fault, says, issued_at])}`;
  return { id, record_id: intent, observed_at: t, grade_at: null, fault, says, issued_at };
}

/**
 * A class that fails everywhere is our fault: on every closed UTC day on which nobody of at least {@link LEAST_PAYEES} payees
 * passed, each of its calls is withdrawn. A day is judged when it is over: before, who is called early would be excused by the
 * silence of those called late. Safe to repeat. What fails so far today is only said (metric `observe_class_failing`).
 * @returns corrections that were written
 */
export async function excuseClasses(parts: ExcuseParts, clock: Pick<Clock, "now">): Promise<number> {
  const { memory, recorder, hosts, metrics, logger } = parts;
  const now = clock.now();
  const today = dayOf(now);
  const failed = await memory.failedClasses(addDays(today, -DAYS_BACK), addDays(today, 1), LEAST_PAYEES);
  let written = 0;
  for (const one of failed) {
    metrics.gauge("observe_class_failing", one.payees, {
      class: one.class,
      day: one.day === today ? "today" : "closed",
    });
    if (one.day === today) continue;
    // Of a host that another observer has now, it says so: two words on one record would be one too many.
    const calls = (await memory.callsOfClass(one.class, one.day)).filter(({ url }) => hosts.owns(hostOf(url)));
    if (calls.length === 0) continue;
    logger.error({ ...one, calls: calls.length }, "a class failed everywhere: its calls of that day are withdrawn");
    for (let i = 0; i < calls.length; i += BATCH) {
      const batch = calls.slice(i, i + BATCH);
      await recorder.append(batch.map((call) => draftOf("correction", call.cap, correctionOf(call, one, now), now)));
      written += batch.length;
    }
  }
  metrics.count("observe_class_excused_total", {}, written);
  return written;
}
