import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";

/**
 * Returns the operating system's id of this thread, by which /proc counts its processor time; null on systems without
 * /proc.
 */
function osThreadId() {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** The worker's side of a bounded thread (bounded-thread.ts): posts `ready`, then an answer to each message. */
export function serveQuestions(answer) {
  parentPort.on("message", async (question) => parentPort.postMessage(await answer(question)));
  parentPort.postMessage({ ready: osThreadId() });
}
