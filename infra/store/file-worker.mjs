/** The thread of file-batch.ts. */
import { parentPort } from "node:worker_threads";
import { moveNew, writeNew } from "./file-steps.mjs";

const STEPS = { writeNew, moveNew };

parentPort.on("message", ({ step, files }) => parentPort.postMessage(STEPS[step](files)));
