/**
 * The thread of parse-thread.ts. What parses is TypeScript, so a loader comes before it: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
import { parentPort } from "node:worker_threads";
// The packages that validation stands on, before the loader: it would be asked for each of their hundred files, on a thread
// of its own, and that is a quarter of what it takes to begin. One that is missing here is only found more slowly.
import "ajv/dist/2020.js";
import "zod";
import { register } from "tsx/esm/api";

register();
const { ParsingBeside } = await import("./batch.ts");

const parsing = new ParsingBeside((answer) => parentPort.postMessage(answer));
parentPort.on("message", (ask) => parsing.hear(ask));
