import type { ListedCap } from "../record/memory.ts";
import type { PlanLine } from "../record/plan.ts";
import { blockOf, blockStart } from "../record/time.ts";
import { type Call, intentId, isDone } from "./call.ts";
import { type RetestState, retest } from "./retest.ts";

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

/** What a host is called for in one block of a span, in time order; of one minute the knock comes first. */
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
    `${String(one.minute).padStart(3, "0")} ${line.cap} ${one.kind === "knock" ? 0 : 1}`;
  return steps.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
}

/** Blocks that a span touches. */
export function blocksOf(span: { from: Date; to: Date }): number[] {
  const first = blockOf(span.from);
  const last = blockOf(new Date(span.to.getTime() - 1));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}

/** Runs `work` for every item, `n` at a time, in order of the items. Stops handing out items once one rejects. */
export async function eachAtOnce<T>(items: readonly T[], n: number, work: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  let failed = false;
  const worker = async (): Promise<void> => {
    while (next < items.length && !failed) {
      try {
        await work(items[next++]!);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(n, items.length) }, worker));
  const broken = ended.find((one) => one.status === "rejected");
  if (broken) throw broken.reason;
}
