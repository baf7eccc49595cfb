import { BLOCK_MS, DAY_MS } from "../record/time.ts";

/** Blocks of a UTC day, and so paid calls of one endpoint a day at most. */
export const BLOCKS_PER_DAY = DAY_MS / BLOCK_MS;
/** Passes in a row that end a spell of re-tests. */
export const PASSES = 3;

/** Where an endpoint stands between failures and passes, from its paid rows in time order. */
export interface RetestState {
  failing: boolean;
  passes: number;
  /** Block of its newest paid row, or null: a re-test only ever goes to a later one. */
  since: number | null;
}

/** Does a counting paid row pass, by every check it has? Below one half is bad (grading-method.md section 2). */
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
 * Is this block re-tested, and at which weight (grading-method.md section 5)? After a failure every block is called
 * until three pass, and the weight is base rate / actual rate, so that a bad spell is not over-counted. Null when
 * nothing failed, in the block of the failure itself, and when the base schedule calls every block anyway. With one
 * call a block there can never be more than four a day.
 */
export function retest(state: RetestState, block: number, basePerDay: number): { w: number } | null {
  if (!state.failing || basePerDay >= BLOCKS_PER_DAY) return null;
  if (state.since !== null && block <= state.since) return null;
  return { w: basePerDay / BLOCKS_PER_DAY };
}
