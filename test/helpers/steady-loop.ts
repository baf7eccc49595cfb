import type { LoopWatch } from "../../infra/loop-watch.ts";

/** A loop that never stands still: for tests that are not about it. */
export const STEADY_LOOP: LoopWatch = { begin: () => () => ({ stoodStill: false, atEnd: false }) };
