import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";

/** Number of this thread to the system, which tells by it what it has had of a processor; null where it does not. */
function taskOf() {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** The thread's own half of a bounded thread (bounded-thread.ts): ready, and then an answer to each message. */
export function answering(answer) {
  parentPort.on("message", async (asked) => parentPort.postMessage(await answer(asked)));
  parentPort.postMessage({ ready: taskOf() });
}
