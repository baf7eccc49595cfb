import type { ListedCap } from "../../record/memory.ts";
import type { PlanLine } from "../../record/plan.ts";
import { BLOCK_MS, blockOf, blockStart, DAY_MS } from "../../record/time.ts";
import { type Call, intentId, isDone } from "../call.ts";

/**
 * Blocks (six hours each) of a UTC day. An endpoint is paid at most once in a block, so this is also the most paid
 * calls a day.
 */
export const BLOCKS_PER_DAY = DAY_MS / BLOCK_MS;
/** Passing calls in a row after which an endpoint is no longer re-tested. */
const PASSES_TO_RECOVER = 3;

/** Whether an endpoint is being re-tested after a failure, computed from its paid rows in time order. */
export interface RetestState {
  failing: boolean;
  passes: number;
  /** Block of the endpoint's newest paid row, or null. A re-test is made only in a later block. */
  since: number | null;
}

/** Does a paid call pass? It must deliver, and no score may be below one half (verification-method.md section 2). */
export const isPassing = (row: { delivered: boolean; delivery: number | null; outcome: number | null }): boolean =>
  row.delivered && (row.delivery ?? 0) >= 0.5 && (row.outcome ?? 1) >= 0.5;

/**
 * The state after one more paid row that counts. For an excused row (our own fault, or bad input) the caller changes
 * only `since`.
 */
export function nextRetestState(state: RetestState, block: number, pass: boolean): RetestState {
  const since = Math.max(block, state.since ?? block);
  if (!pass) return { failing: true, passes: 0, since };
  if (!state.failing) return { failing: false, passes: 0, since };
  const count = state.passes + 1;
  return count >= PASSES_TO_RECOVER ? { failing: false, passes: 0, since } : { failing: true, passes: count, since };
}

/**
 * Decides whether the endpoint is re-tested in this block, and with which weight (verification-method.md section 5).
 * After a failure it is called in every block until three calls pass. The weight is planned rate / actual rate, so that
 * a bad period with more calls does not count more. null when nothing failed, in the block of the failure itself, and
 * when the plan has a paid call in every block anyway.
 */
export function retest(state: RetestState, block: number, basePerDay: number): { w: number } | null {
  if (!state.failing || basePerDay >= BLOCKS_PER_DAY) return null;
  if (state.since !== null && block <= state.since) return null;
  return { w: basePerDay / BLOCKS_PER_DAY };
}

/** The time of a minute within a block. */
export const minuteOfBlock = (block: number, minute: number): Date =>
  new Date(blockStart(block).getTime() + minute * 60_000);

/** The re-test state from the record, for an endpoint that this process has not paid yet. */
export function stateFromRecord(one: ListedCap, line: PlanLine, done: ReadonlySet<string>, first: number): RetestState {
  let since: number | null = null;
  const minute = line.calls[0]?.minute ?? 0;
  for (let block = first; block < first + 4; block++) {
    if (done.has(intentId(one.cap, { block, minute }))) since = block;
  }
  return { ...one.retest, since };
}

const createCall = (
  kind: Call["kind"],
  block: number,
  minute: number,
  blind: boolean,
  w = 1,
  isRetest = false,
): Call => ({
  kind,
  block,
  minute,
  plannedAt: minuteOfBlock(block, minute),
  blind,
  w,
  retest: isRetest,
});

/**
 * Calls of one endpoint in one block: those of the plan, and a re-test if the last paid rows require it. A re-test has
 * the endpoint's minute, is always blind (paid from a wallet that the seller does not know), and is left out where the
 * plan has a paid call.
 */
export function callsInBlock(line: PlanLine, block: number, state: RetestState): Call[] {
  const planned = line.calls.filter((one) => one.block === block);
  const calls = planned.map((one) => createCall(one.kind, one.block, one.minute, one.blind));
  const first = line.calls[0];
  // A block that had begun when the plan was made has no planned call, and it gets no re-test either.
  if (!line.covered || !first || block < first.block || planned.some((one) => one.kind === "paid")) return calls;
  const retestCall = retest(state, block, line.base_per_day);
  if (retestCall) calls.push(createCall("paid", block, first.minute, true, retestCall.w, true));
  return calls;
}

/** One call of one endpoint, with the endpoint's line in the plan. */
export interface Step {
  line: PlanLine;
  call: Call;
}

/**
 * The calls of a host in one block of a span that were not made yet, in time order; in a minute the probe comes first.
 */
export function orderSteps(
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
export function overlappedBlocks(span: { from: Date; to: Date }): number[] {
  const first = blockOf(span.from);
  const last = blockOf(new Date(span.to.getTime() - 1));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}
