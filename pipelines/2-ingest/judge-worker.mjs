/**
 * A thread of judge-thread.ts. What judges is TypeScript, so a loader comes before it: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
import { parentPort } from "node:worker_threads";
// The packages that judging stands on, before the loader: it would be asked for each of their hundred files, on a thread
// of its own, and that is a quarter of what it takes to begin. One that is missing here is only found more slowly.
import "ajv/dist/2020.js";
import "canonicalize";
import "kafkajs/src/protocol/message/compression/index.js";
import "zod";
import "zstd-napi";
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
