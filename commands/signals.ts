/** Signals after which nobody waits any longer for a tidy end. */
const IMPATIENT = 4;

/**
 * Calls `stop` at the first SIGINT or SIGTERM. The second one is usually the same Ctrl-C, sent to the group and handed on
 * by the runner: dying of it would leave the market running, so further ones are only counted, and the fourth ends the
 * process at once. @returns takes the handlers away
 */
export function onStopSignal(stop: () => void): () => void {
  let seen = 0;
  const handler = (): void => {
    seen++;
    if (seen === 1) stop();
    if (seen >= IMPATIENT) process.exit(130);
  };
  process.on("SIGINT", handler);
  process.on("SIGTERM", handler);
  return () => {
    process.off("SIGINT", handler);
    process.off("SIGTERM", handler);
  };
}

/** Resolves at the first SIGINT or SIGTERM. */
export const untilStopped = (): Promise<void> => new Promise((resolve) => void onStopSignal(resolve));
