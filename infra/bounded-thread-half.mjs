import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";

/** Returns the thread id of the operating system, for its processor time; null on systems without /proc. */
function taskOf() {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** The worker's side of a bounded thread (bounded-thread.ts): posts `ready`, then an answer to each message. */
export function answering(answer) {
  parentPort.on("message", async (asked) => parentPort.postMessage(await answer(asked)));
  parentPort.postMessage({ ready: taskOf() });
}
