import { sha256hex } from "../../infra/canonical.ts";
import { callsOf, coveredRoot, dayBytes } from "../1-observe/plan/plan.ts";
import type { DayPlan, PlannedCall } from "../record/plan.ts";
import { blockOf, dayStart } from "../record/time.ts";

/** What the log says of a day: the commitment, and the salt once it was opened. */
export interface Committed {
  salt_hash: string;
  covered_root: string;
  covered: number;
  /** 32 bytes as hex, or null while the day is not over. */
  salt: string | null;
}

const same = (a: PlannedCall, b: PlannedCall): boolean =>
  a.block === b.block && a.minute === b.minute && a.kind === b.kind && a.blind === b.blind;

/** Do an endpoint's calls follow from the salt? A plan that was made later in the day lacks what had begun by then. */
function follows(calls: readonly PlannedCall[], all: readonly PlannedCall[]): boolean {
  const from = all.findIndex((call) => calls[0] !== undefined && same(call, calls[0]));
  if (calls.length === 0) return true;
  return from >= 0 && all.length - from === calls.length && calls.every((call, i) => same(call, all[from + i]!));
}

/**
 * What is wrong with a day's plan against what was published of it, one sentence each; empty when it fits. Without the
 * opened salt only the commitment can be checked, not where the calls lie.
 */
export function checkPlan(plan: DayPlan, committed: Committed): string[] {
  const wrong: string[] = [];
  const covered = plan.lines.filter((line) => line.covered).map((line) => line.cap);
  if (plan.salt_hash !== committed.salt_hash) wrong.push("its salt is not the one that was committed");
  if (coveredRoot(covered) !== committed.covered_root) wrong.push("it does not cover what was committed");
  if (covered.length !== committed.covered)
    wrong.push(`it covers ${covered.length}, and ${committed.covered} were committed`);
  if (committed.salt === null) return wrong;
  const salt = Buffer.from(committed.salt, "hex");
  if (sha256hex(salt) !== committed.salt_hash) wrong.push("the opened salt is not the one that was committed");
  const first = blockOf(dayStart(plan.day));
  for (const line of plan.lines) {
    const all = callsOf(dayBytes(salt, line.cap), first, line.base_per_day, line.covered);
    if (!follows(line.calls, all)) wrong.push(`the calls of ${line.cap} do not follow from the salt`);
  }
  return wrong;
}
