import type { ListedCap } from "../../record/memory.ts";
import type { PlanLine } from "../../record/plan.ts";
import { BLOCK_MS, blockOf, blockStart, DAY_MS } from "../../record/time.ts";
import { type Call, intentId, isDone } from "../call.ts";

/**
 * Number of blocks (six hours each) in a UTC day. An endpoint is paid at most once in a block, so it has at most this
 * many paid calls a day.
 */
export const BLOCKS_PER_DAY = DAY_MS / BLOCK_MS;
/** Number of passing calls in a row after which an endpoint is no longer re-tested. */
const PASSES_TO_RECOVER = 3;

/** The state of an endpoint's re-tests after a failure, computed from its paid rows in time order. */
export interface RetestState {
  /** True from a failed paid call until enough calls in a row have passed. */
  failing: boolean;
  /** Number of calls that have passed since the last failure, while `failing`; else 0. */
  passes: number;
  /**
   * Is there a failure that a buyer published, without a verdict yet? Until the verdict the re-tests continue, however
   * many calls pass.
   */
  unconfirmed?: boolean | undefined;
  /** Block of the endpoint's newest paid row, or null. A re-test is made only in a later block. */
  lastPaidBlock: number | null;
}

/** Does a paid call pass? It must deliver, and no score may be below one half (verification-method.md section 2). */
export const isPassing = (row: { delivered: boolean; delivery: number | null; outcome: number | null }): boolean =>
  row.delivered && (row.delivery ?? 0) >= 0.5 && (row.outcome ?? 1) >= 0.5;

/**
 * Returns the state after one more paid row that counts. For an excused row (our own fault, or bad input) the caller
 * changes only `lastPaidBlock`.
 */
export function nextRetestState(state: RetestState, block: number, hasPassed: boolean): RetestState {
  const lastPaidBlock = Math.max(block, state.lastPaidBlock ?? block);
  if (!hasPassed) return { ...state, failing: true, passes: 0, lastPaidBlock };
  if (!state.failing) return { ...state, passes: 0, lastPaidBlock };
  const count = state.passes + 1;
  return count >= PASSES_TO_RECOVER && !state.unconfirmed
    ? { ...state, failing: false, passes: 0, lastPaidBlock }
    : { ...state, failing: true, passes: count, lastPaidBlock };
}

/**
 * Returns the state with which a span begins, for an endpoint that this process has paid before. Only the recorded
 * state includes failures that buyers published, but it may lack our own newest calls, which the remembered state has.
 */
export function resumedState(remembered: RetestState, recorded: ListedCap["retest"]): RetestState {
  const isUnconfirmed = recorded.unconfirmed || remembered.unconfirmed;
  const useRecord = isUnconfirmed || (recorded.failing && !remembered.failing);
  return useRecord ? { ...recorded, lastPaidBlock: remembered.lastPaidBlock } : remembered;
}

/**
 * Decides whether the endpoint is re-tested in this block, and with which weight (verification-method.md section 5).
 * After a failure it is called in every block until three calls pass. The weight is planned rate / actual rate, so that
 * a bad period with more calls does not count more. null when nothing failed, in the block of the failure itself, and
 * when the plan has a paid call in every block.
 */
export function retestWeight(state: RetestState, block: number, basePerDay: number): { w: number } | null {
  if (!state.failing || basePerDay >= BLOCKS_PER_DAY) return null;
  if (state.lastPaidBlock !== null && block <= state.lastPaidBlock) return null;
  return { w: basePerDay / BLOCKS_PER_DAY };
}

/** Returns the time of a minute within a block. */
export const timeOfMinute = (block: number, minute: number): Date =>
  new Date(blockStart(block).getTime() + minute * 60_000);

/** Reads the re-test state from the record, for an endpoint that this process has not paid yet. */
export function retestStateFromRecord(
  endpoint: ListedCap,
  line: PlanLine,
  doneIds: ReadonlySet<string>,
  firstBlock: number,
): RetestState {
  let lastPaidBlock: number | null = null;
  const minute = line.calls[0]?.minute ?? 0;
  for (let block = firstBlock; block < firstBlock + 4; block++) {
    if (doneIds.has(intentId(endpoint.cap, { block, minute }))) lastPaidBlock = block;
  }
  return { ...endpoint.retest, lastPaidBlock };
}

const createPlannedCall = (
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
  plannedAt: timeOfMinute(block, minute),
  blind,
  w,
  retest: isRetest,
});

/**
 * Returns the calls of one endpoint in one block: those of the plan, and a re-test if the last paid rows require one. A
 * re-test has the endpoint's minute and is always blind (paid from a wallet that the seller does not know). There is
 * none if the plan has a paid call in the block.
 */
export function callsInBlock(line: PlanLine, block: number, state: RetestState): Call[] {
  const plannedCalls = line.calls.filter((one) => one.block === block);
  const calls = plannedCalls.map((one) => createPlannedCall(one.kind, one.block, one.minute, one.blind));
  const firstCall = line.calls[0];
  // A block that had begun when the plan was made has no planned call, and no re-test either.
  if (!line.covered || !firstCall || block < firstCall.block || plannedCalls.some((one) => one.kind === "paid"))
    return calls;
  const retest = retestWeight(state, block, line.base_per_day);
  if (retest) calls.push(createPlannedCall("paid", block, firstCall.minute, true, retest.w, true));
  return calls;
}

/** One call of one endpoint, with the endpoint's line in the plan. */
export interface PlannedStep {
  line: PlanLine;
  call: Call;
}

/**
 * Returns the calls of a host in one block of a span that were not made yet, in time order. Within a minute the probe
 * is first.
 */
export function orderSteps(
  lines: readonly PlanLine[],
  block: number,
  span: { from: Date; to: Date },
  stateOf: (line: PlanLine) => RetestState,
  doneIds: ReadonlySet<string>,
): PlannedStep[] {
  const steps = lines.flatMap((line) =>
    callsInBlock(line, block, stateOf(line))
      .filter((one) => one.plannedAt >= span.from && one.plannedAt < span.to && !isDone(doneIds, line.cap, one))
      .map((one) => ({ line, call: one })),
  );
  const sortKey = ({ line, call: one }: PlannedStep): string =>
    `${String(one.minute).padStart(3, "0")} ${line.cap} ${one.kind === "probe" ? 0 : 1}`;
  return steps.sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1));
}

/** Returns the blocks that a span overlaps. */
export function overlappedBlocks(span: { from: Date; to: Date }): number[] {
  const firstBlock = blockOf(span.from);
  const lastBlock = blockOf(new Date(span.to.getTime() - 1));
  return Array.from({ length: Math.max(0, lastBlock - firstBlock + 1) }, (_, i) => firstBlock + i);
}
