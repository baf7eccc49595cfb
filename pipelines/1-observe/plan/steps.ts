import type { ListedCap } from "../../record/memory.ts";
import type { PlanLine } from "../../record/plan.ts";
import { BLOCK_MS, blockOf, blockStart, DAY_MS } from "../../record/time.ts";
import { type Call, intentId, isDone } from "../call.ts";

/** Blocks of a UTC day. An endpoint is called at most once in a block, so this is also the most paid calls a day. */
export const BLOCKS_PER_DAY = DAY_MS / BLOCK_MS;
/** Passes in a row after which an endpoint is no longer re-tested. */
const PASSES = 3;

/** Whether an endpoint is being re-tested after a failure, computed from its paid rows in time order. */
export interface RetestState {
  failing: boolean;
  passes: number;
  /** Block of its newest paid row, or null. A re-test is made only in a later block. */
  since: number | null;
}

/** Does a paid row that counts pass every check? A value below one half is bad (verification-method.md section 2). */
export const passes = (row: { delivered: boolean; delivery: number | null; outcome: number | null }): boolean =>
  row.delivered && (row.delivery ?? 0) >= 0.5 && (row.outcome ?? 1) >= 0.5;

/**
 * The state after one more paid row that counts. A row that is excused as ours or as bad input changes only `since`.
 */
export function afterRow(state: RetestState, block: number, pass: boolean): RetestState {
  const since = Math.max(block, state.since ?? block);
  if (!pass) return { failing: true, passes: 0, since };
  if (!state.failing) return { failing: false, passes: 0, since };
  const count = state.passes + 1;
  return count >= PASSES ? { failing: false, passes: 0, since } : { failing: true, passes: count, since };
}

/**
 * Is the endpoint re-tested in this block, and with which weight (verification-method.md section 5)? After a failure it
 * is called in every block until three calls pass. The weight is base rate / actual rate, so that a bad time is not
 * counted too much. Null when nothing failed, in the block of the failure itself, and when the plan calls every block
 * anyway. With one call a block there are at most four a day.
 */
export function retest(state: RetestState, block: number, basePerDay: number): { w: number } | null {
  if (!state.failing || basePerDay >= BLOCKS_PER_DAY) return null;
  if (state.since !== null && block <= state.since) return null;
  return { w: basePerDay / BLOCKS_PER_DAY };
}

/** The moment of a minute of a block. */
export const momentOf = (block: number, minute: number): Date =>
  new Date(blockStart(block).getTime() + minute * 60_000);

/** The re-test state from the record, for an endpoint of which this process has seen no paid row yet. */
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
 * Calls of one endpoint in one block: those of the plan, and a re-test when the last paid rows require one. A re-test
 * has the endpoint's minute, is always blind, and is left out where the plan has a paid call.
 */
export function callsInBlock(line: PlanLine, block: number, state: RetestState): Call[] {
  const planned = line.calls.filter((one) => one.block === block);
  const calls = planned.map((one) => call(one.kind, one.block, one.minute, one.blind));
  const first = line.calls[0];
  // A block that had begun when the plan was made has no planned call, so it gets no re-test either.
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

/** Calls of a host in one block of a span, in time order; in a minute the probe comes first. */
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

/** Blocks that a span overlaps. */
export function blocksOf(span: { from: Date; to: Date }): number[] {
  const first = blockOf(span.from);
  const last = blockOf(new Date(span.to.getTime() - 1));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}
