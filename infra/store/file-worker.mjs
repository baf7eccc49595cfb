/** The thread of file-batch.ts. */
import { parentPort } from "node:worker_threads";
import { moveNew, writeNew } from "./file-steps.mjs";

/** Files whose bytes lie in memory that the other thread leaves alone until we have answered. */
const writeShared = (files, shared) =>
  writeNew(files.map(({ path, at, end }) => ({ path, bytes: new Uint8Array(shared, at, end - at) })));

const STEPS = { writeNew, moveNew, writeShared };

parentPort.on("message", ({ ask, step, files, shared }) =>
  parentPort.postMessage({ ask, codes: STEPS[step](files, shared) }),
);
