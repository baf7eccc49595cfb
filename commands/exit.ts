import { EXIT, Failure } from "../infra/errors.ts";

export { EXIT };

export type ExitName = keyof typeof EXIT;

/** The exit code of an error: its own, or that of anything that has none. */
export const exitCodeOf = (error: unknown): number => EXIT[error instanceof Failure ? error.code : "failed"];

/** The word of a code. */
export const exitNameOf = (code: number): string =>
  Object.entries(EXIT).find(([, one]) => one === code)?.[0] ?? "failed";

/** The codes as lines for `--help`. */
export const EXIT_HELP = `Exit codes: ${Object.entries(EXIT)
  .map(([name, code]) => `${code} ${name}`)
  .join(", ")}.`;

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
    // The terminal is gone: writing to it would end this process before what it started is stopped.
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
