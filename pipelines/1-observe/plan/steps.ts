import type { ListedCap } from "../../record/memory.ts";
import type { PlanLine } from "../../record/plan.ts";
import { BLOCK_MS, blockOf, blockStart, DAY_MS } from "../../record/time.ts";
import { type Call, intentId, isDone } from "../call.ts";

/** Blocks of a UTC day, and so paid calls of one endpoint a day at most. */
export const BLOCKS_PER_DAY = DAY_MS / BLOCK_MS;
/** Passes in a row that end a spell of re-tests. */
const PASSES = 3;

/** Where an endpoint stands between failures and passes, from its paid rows in time order. */
export interface RetestState {
  failing: boolean;
  passes: number;
  /** Block of its newest paid row, or null: a re-test only ever goes to a later one. */
  since: number | null;
}

/** Does a counting paid row pass, by every check it has? Below one half is bad (verification-method.md section 2). */
export const passes = (row: { delivered: boolean; delivery: number | null; outcome: number | null }): boolean =>
  row.delivered && (row.delivery ?? 0) >= 0.5 && (row.outcome ?? 1) >= 0.5;

/** The state after one more paid row that counts. Rows excused as ours or as bad input change nothing but `since`. */
export function afterRow(state: RetestState, block: number, pass: boolean): RetestState {
  const since = Math.max(block, state.since ?? block);
  if (!pass) return { failing: true, passes: 0, since };
  if (!state.failing) return { failing: false, passes: 0, since };
  const count = state.passes + 1;
  return count >= PASSES ? { failing: false, passes: 0, since } : { failing: true, passes: count, since };
}

/**
 * Is this block re-tested, and at which weight (verification-method.md section 5)? After a failure every block is called
 * until three pass, and the weight is base rate / actual rate, so that a bad spell is not over-counted. Null when
 * nothing failed, in the block of the failure itself, and when the base schedule calls every block anyway. With one
 * call a block there can never be more than four a day.
 */
export function retest(state: RetestState, block: number, basePerDay: number): { w: number } | null {
  if (!state.failing || basePerDay >= BLOCKS_PER_DAY) return null;
  if (state.since !== null && block <= state.since) return null;
  return { w: basePerDay / BLOCKS_PER_DAY };
}

/** Moment of a planned minute. */
export const momentOf = (block: number, minute: number): Date =>
  new Date(blockStart(block).getTime() + minute * 60_000);

/** Where re-tests of an endpoint stand when this process has seen none of its paid rows yet. */
export function stateFromRecord(one: ListedCap, line: PlanLine, done: ReadonlySet<string>, first: number): RetestState {
  let since: number | null = null;
  const minute = line.calls[0]?.minute ?? 0;
  for (let block = first; block < first + 4; block++) {
    if (done.has(intentId(one.cap, { block, minute }))) since = block;
  }
  return { ...one.retest, since };
}

const call = (kind: Call["kind"], block: number, minute: number, blind: boolean, w = 1, isRetest = false): Call => ({
  kind,
  block,
  minute,
  plannedAt: momentOf(block, minute),
  blind,
  w,
  retest: isRetest,
});

/**
 * Calls of one endpoint in one block: those of the plan, and a re-test when the last paid rows ask for one. A re-test
 * keeps the endpoint's minute, is always blind, and never stands beside a call of the plan.
 */
export function callsInBlock(line: PlanLine, block: number, state: RetestState): Call[] {
  const planned = line.calls.filter((one) => one.block === block);
  const calls = planned.map((one) => call(one.kind, one.block, one.minute, one.blind));
  const first = line.calls[0];
  // A block that had begun when the plan was made has no planned call, and no re-test either.
  if (!line.covered || !first || block < first.block || planned.some((one) => one.kind === "paid")) return calls;
  const again = retest(state, block, line.base_per_day);
  if (again) calls.push(call("paid", block, first.minute, true, again.w, true));
  return calls;
}

/** One call of one endpoint. */
export interface Step {
  line: PlanLine;
  call: Call;
}

/** What a host is called for in one block of a span, in time order; of one minute the probe comes first. */
export function stepsOf(
  lines: readonly PlanLine[],
  block: number,
  span: { from: Date; to: Date },
  stateOf: (line: PlanLine) => RetestState,
  done: ReadonlySet<string>,
): Step[] {
  const steps = lines.flatMap((line) =>
    callsInBlock(line, block, stateOf(line))
      .filter((one) => one.plannedAt >= span.from && one.plannedAt < span.to && !isDone(done, line.cap, one))
      .map((one) => ({ line, call: one })),
  );
  const rank = ({ line, call: one }: Step): string =>
    `${String(one.minute).padStart(3, "0")} ${line.cap} ${one.kind === "probe" ? 0 : 1}`;
  return steps.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
}

/** Blocks that a span touches. */
export function blocksOf(span: { from: Date; to: Date }): number[] {
  const first = blockOf(span.from);
  const last = blockOf(new Date(span.to.getTime() - 1));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}
