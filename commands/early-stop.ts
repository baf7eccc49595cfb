/**
 * SIGTERM and SIGINT before a command has its own way to stop (`onStopSignal`): while its files are loaded, and while a
 * role opens its parts. The kernel discards a signal that the first process of a container has no handler for, so a stop
 * during the start would wait for SIGKILL. A start needs no tidy end: every write survives a kill.
 * touchstone.ts imports this before anything else.
 */
const CODES = { SIGTERM: 143, SIGINT: 130 } as const;

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  const endAtOnce = (): void => {
    // Whoever else listens stops in its own way.
    if (process.listenerCount(signal) > 1) return;
    process.off(signal, endAtOnce);
    // As if there had been no handler; the first process of a container outlives this line, and ends as a shell would.
    process.kill(process.pid, signal);
    process.exit(CODES[signal]);
  };
  process.on(signal, endAtOnce);
}
