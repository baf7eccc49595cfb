/**
 * A thread of judge-thread.ts. What judges is TypeScript, so the loader comes first: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
import { parentPort } from "node:worker_threads";
import { register } from "tsx/esm/api";

register();
const { Judging } = await import("./judging.ts");

const judging = new Judging((answer, moved = []) => parentPort.postMessage(answer, moved));
/** One message after the other: opening a batch is asynchronous. What fails past telling of it ends the thread. */
let tail = Promise.resolve();
parentPort.on("message", (ask) => {
  tail = tail.then(() => judging.hear(ask));
});
parentPort.postMessage({ what: "ready" });
