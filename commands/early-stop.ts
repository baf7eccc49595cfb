/**
 * Handles SIGTERM and SIGINT until the command has registered its own handler (`onStopSignal`), that is while Node
 * loads the command's files and while the command opens its log, stores and database. The kernel discards a signal for
 * which the first process of a container has no handler, so a stop during the start would otherwise wait for SIGKILL.
 * Ending at once is safe, since every write survives a kill. touchstone.ts imports this file before anything else.
 */

/** Exit codes that a shell reports for a process that was ended by the signal. */
const SIGNAL_EXIT_CODES = { SIGTERM: 143, SIGINT: 130 } as const;

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  const endAtOnce = (): void => {
    // The command's own handler is registered too, and stops the process in its own way.
    if (process.listenerCount(signal) > 1) return;
    process.off(signal, endAtOnce);
    // Kills the process as if there had been no handler. The first process of a container survives that, and exits with
    // the code that a shell would give.
    process.kill(process.pid, signal);
    process.exit(SIGNAL_EXIT_CODES[signal]);
  };
  process.on(signal, endAtOnce);
}
