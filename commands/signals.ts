/** Signals after which nobody waits any longer for a tidy end. */
const IMPATIENT = 4;

const STOPS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Calls `stop` at the first SIGINT, SIGTERM or SIGHUP. The second one is usually the same Ctrl-C, sent to the group and
 * handed on by the runner: dying of it would leave the market running, so further ones are only counted, and the fourth
 * ends the process at once. @returns takes the handlers away
 */
export function onStopSignal(stop: () => void): () => void {
  let seen = 0;
  const handler = (signal: NodeJS.Signals): void => {
    // The terminal is gone: a word to it would end us before what we started is stopped.
    if (signal === "SIGHUP") for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
    seen++;
    if (seen === 1) stop();
    if (seen >= IMPATIENT) process.exit(130);
  };
  for (const signal of STOPS) process.on(signal, handler);
  return () => {
    for (const signal of STOPS) process.off(signal, handler);
  };
}

/** Resolves at the first SIGINT, SIGTERM or SIGHUP. */
export const untilStopped = (): Promise<void> => new Promise((resolve) => void onStopSignal(resolve));
