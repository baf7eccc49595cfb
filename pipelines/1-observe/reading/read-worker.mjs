/**
 * The thread of reader.ts. What reads is TypeScript, so a loader comes before it: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";
// The packages that reading stands on, before the loader: it would be asked for each of their hundred files, on a thread
// of its own, and that is a quarter of what it takes to begin. One that is missing here is only found more slowly.
import "ajv";
import "ajv/dist/2020.js";
import "ajv-formats";
import "csv-parse/sync";
import "tldts";
import "yaml";
import "zod";
import { register } from "tsx/esm/api";

register();
const { QUESTIONS } = await import("./questions.ts");

/** Number of this thread to the system, by which others see what it has had of a processor; null where it does not tell. */
function taskOf() {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

parentPort.on("message", ({ name, of }) => {
  try {
    parentPort.postMessage({ ok: true, said: QUESTIONS[name](of) });
  } catch (error) {
    parentPort.postMessage({ ok: false, says: `the reader stumbled: ${String(error).slice(0, 300)}` });
  }
});
parentPort.postMessage({ ready: taskOf() });
