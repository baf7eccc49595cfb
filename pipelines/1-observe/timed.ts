import { readFileSync } from "node:fs";
import vm from "node:vm";

/** A stranger's schema or pattern that would not come to an end. */
export class OutOfTime extends Error {
  constructor(readonly ms: number) {
    super(`not done after ${ms} ms`);
    this.name = "OutOfTime";
  }
}

const context = vm.createContext({ work: null });
const script = new vm.Script("work()");

/**
 * Runs synchronous work under a hard limit of `ms`: a pattern that backtracks for ever and a schema that doubles at
 * every level are cut off by the engine itself, whatever they look like. Costs about 0.05 ms. Not a sandbox.
 * @throws OutOfTime, or what the work throws.
 */
export function timed<T>(ms: number, work: () => T): T {
  context.work = work;
  try {
    return script.runInContext(context, { timeout: ms }) as T;
  } catch (error) {
    if ((error as { code?: unknown }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") throw new OutOfTime(ms);
    throw error;
  } finally {
    context.work = null;
  }
}

/** Longest of the times that work is given, in the ones that {@link timed} gives it first. */
const MOST = 8;

/**
 * Runs work that is the same each time under a limit of `ms` of the processor's time: a machine that has much else to do
 * stretches anybody's work. What is cut off is tried again with twice the time, until it had `ms` to itself in one try;
 * what never has, in 15 times `ms` of the clock, is cut off all the same.
 * @throws OutOfTime, or what the work throws.
 */
export function patient<T>(ms: number, work: () => T): T {
  for (let limit = ms; ; limit *= 2) {
    const from = limit === ms ? Number.NaN : ownTime();
    try {
      return timed(limit, work);
    } catch (error) {
      if (!(error instanceof OutOfTime) || limit >= MOST * ms || ownTime() - from >= ms) throw error;
    }
  }
}

/** Time that this thread has had of a processor, ms; where the system does not tell, that of the whole process. */
function ownTime(): number {
  try {
    return Number.parseInt(readFileSync("/proc/thread-self/schedstat", "utf8"), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  }
}
