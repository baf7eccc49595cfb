/**
 * The thread of summariser.ts: ranks sentences of what strangers wrote. What ranks is TypeScript, so a loader comes
 * before it, whatever the flags of whoever began this thread.
 */
import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import { register } from "tsx/esm/api";

register();
const { rank } = await import("./rank.ts");

/** Number of this thread to the system; null where it does not tell. */
function taskOf() {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

parentPort.on("message", ({ question, texts, most }) => parentPort.postMessage(rank(question, texts, most)));
parentPort.postMessage({ ready: taskOf() });
