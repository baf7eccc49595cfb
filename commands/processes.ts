import cluster, { type Worker } from "node:cluster";
import { systemClock } from "../infra/clock.ts";
import { createLogger } from "../infra/telemetry.ts";
import { EXIT, onStopSignal } from "./exit.ts";

/** First pause before a dead process is replaced, ms. The pause doubles while processes die early. */
const PAUSE_MS = 200;
/** Longest pause before a dead process is replaced, ms. */
const MAX_PAUSE_MS = 30_000;
/** Age of a process, ms, before which its end counts as a failure at its start. */
const EARLY_DEATH_MS = 10_000;

/**
 * Runs `work` in `n` processes that share one listening port, and replaces each process that ends. The processes share
 * a socket that the first process opens, since Node supports SO_REUSEPORT only from 22.12 on. If a process ends before
 * any of them has listened, all end with its exit code, since the others would fail for the same reason. A stop signal
 * is passed on to every process as SIGTERM; each ends after its requests in progress.
 * @param envOf returns the environment variables of the k-th process, from 0, and of its replacements
 */
export async function runInProcesses(
  n: number,
  work: () => Promise<void>,
  envOf: (k: number) => Record<string, string> = () => ({}),
): Promise<void> {
  if (n <= 1) return work();
  if (cluster.isWorker) {
    await work();
    // An open channel to the first process would keep this process alive.
    cluster.worker?.disconnect();
    return;
  }
  // Each process accepts connections itself. When one ends, the others accept the waiting connections, and the kernel
  // resets those that the ended process had accepted. If the first process distributed the connections instead, a
  // connection that it sent to an ending process would never be answered.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const logger = createLogger("warn");
  const pause = new AbortController();
  let stopping = false;
  let everListened = false;
  let code: number = EXIT.ok;
  const stop = (): void => {
    stopping = true;
    pause.abort();
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill("SIGTERM");
  };
  const keepProcessRunning = async (_: unknown, k: number): Promise<void> => {
    for (let pauseMs = PAUSE_MS; !stopping; ) {
      const startedAt = systemClock.monotonic();
      const childExitCode = await waitForExit(cluster.fork(envOf(k)), () => {
        everListened = true;
      });
      if (stopping) break;
      if (!everListened) {
        code = childExitCode ?? EXIT.failed;
        return stop();
      }
      pauseMs = systemClock.monotonic() - startedAt > EARLY_DEATH_MS ? PAUSE_MS : Math.min(MAX_PAUSE_MS, pauseMs * 2);
      logger.warn({ process: k, code: childExitCode }, "a process ended and is replaced");
      await systemClock.sleep(pauseMs, pause.signal).catch(() => undefined);
    }
  };
  const removeStopHandlers = onStopSignal(stop);
  await Promise.all(Array.from({ length: n }, keepProcessRunning));
  removeStopHandlers();
  process.exitCode = code;
}

/** Resolves with the exit code of a process, null when it was killed. */
const waitForExit = (worker: Worker, onListening: () => void): Promise<number | null> =>
  new Promise((resolve) => {
    worker.once("listening", onListening);
    worker.once("exit", (code, signal) => resolve(signal ? null : code));
  });
