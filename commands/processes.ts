import cluster, { type Worker } from "node:cluster";
import { systemClock } from "../infra/clock.ts";
import { createLogger } from "../infra/telemetry.ts";
import { EXIT, onStopSignal } from "./exit.ts";

/** Pauses before a process that died is replaced, ms: doubled while they die young, up to the longest. */
const PAUSE_MS = 200;
const MAX_PAUSE_MS = 30_000;
/** A process that lived so long did not die of its start. */
const YOUNG_MS = 10_000;

/**
 * Runs `work` in `n` processes that share one listening port, and replaces each that dies. They share one
 * socket that the first process opened: the kernel's own sharing (SO_REUSEPORT) is in Node from 22.12 on. One that ends
 * before it was ever listening ends them all with its code: what keeps it from starting keeps them all. SIGTERM goes to
 * every process, and each ends when its answers under way have.
 * @param envOf variables of the k-th process, from 0; another that takes its place has the same
 */
export async function inProcesses(
  n: number,
  work: () => Promise<void>,
  envOf: (k: number) => Record<string, string> = () => ({}),
): Promise<void> {
  if (n <= 1) return work();
  if (cluster.isWorker) {
    await work();
    // The channel to the first process would keep this one alive.
    cluster.worker?.disconnect();
    return;
  }
  // Each process accepts for itself: what waits to be accepted is taken by the others when one dies, and the kernel
  // resets what it had accepted. Handed out by the first process, a connection on its way to a dead one is never answered.
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
  const one = async (_: unknown, k: number): Promise<void> => {
    for (let wait = PAUSE_MS; !stopping; ) {
      const began = systemClock.monotonic();
      const ended = await lived(cluster.fork(envOf(k)), () => {
        everListened = true;
      });
      if (stopping) break;
      if (!everListened) {
        code = ended ?? EXIT.failed;
        return stop();
      }
      wait = systemClock.monotonic() - began > YOUNG_MS ? PAUSE_MS : Math.min(MAX_PAUSE_MS, wait * 2);
      logger.warn({ process: k, code: ended }, "a process ended; another takes its place");
      await systemClock.sleep(wait, pause.signal).catch(() => undefined);
    }
  };
  const quiet = onStopSignal(stop);
  await Promise.all(Array.from({ length: n }, one));
  quiet();
  process.exitCode = code;
}

/** Resolves with the exit code of a process, null when it was killed. */
const lived = (worker: Worker, onListening: () => void): Promise<number | null> =>
  new Promise((resolve) => {
    worker.once("listening", onListening);
    worker.once("exit", (code, signal) => resolve(signal ? null : code));
  });
