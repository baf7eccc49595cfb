import { MirrorUsage } from "./errors.ts";
import { type MirrorOptions, type MirrorSummary, mirrorOnce } from "./mirror.ts";

export interface FollowOptions extends MirrorOptions {
  /** Pause between two runs, seconds. */
  everySeconds: number;
  /** Ends it: the run under way is finished first, a pause is not waited for. */
  signal: AbortSignal;
  /** Told after each run that changed what is exposed: it is durable and proven. What it throws ends the following. */
  onSnapshot?: (summary: MirrorSummary) => void | Promise<void>;
  /** Told of each run that failed; the snapshot before it stands. */
  onFault?: (error: Error, pauseSeconds: number) => void;
}

/** Longest pause after failures, seconds, and how much it grows with each one in a row. */
const MAX_PAUSE_S = 300;
const GROWTH = 2;

/**
 * Keep a mirror up to date until it is told to stop. A source that is away, lies or goes back leaves what is exposed as it
 * is and is asked again, with growing pauses (at most five minutes).
 * @throws Forked, MirrorBusy, MirrorUsage, faults of our own
 */
export async function followMirror(options: FollowOptions): Promise<void> {
  const { everySeconds, signal, onSnapshot, onFault } = options;
  if (!(everySeconds >= 1 && everySeconds <= MAX_PAUSE_S)) {
    throw new MirrorUsage(`a mirror follows every 1 to ${MAX_PAUSE_S} seconds`);
  }
  let pause = everySeconds;
  while (!signal.aborted) {
    const summary = await mirrorOnce(options).catch((error: unknown) => {
      if (!isOfTheSource(error)) throw error;
      pause = Math.min(MAX_PAUSE_S, pause * GROWTH);
      onFault?.(error as Error, pause);
      return null;
    });
    if (summary) pause = everySeconds;
    if (summary && summary.result !== "idle") await onSnapshot?.(summary);
    // Only the signal ends a pause early.
    await options.clock.sleep(pause * 1_000, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}

/** What a later run may find mended; two histories, another keeper or our own disk it will not. */
const OF_THE_SOURCE: ReadonlySet<string> = new Set(
  "Rollback Stale Tampered Unproven Oversized MissingObject SourceDown".split(" "),
);
const isOfTheSource = (error: unknown): boolean => OF_THE_SOURCE.has((error as Error | null)?.name ?? "");
