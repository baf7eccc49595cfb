/**
 * The thread of hashing.ts. Plain JavaScript, so that it starts without a loader. Takes pieces of one text, says how
 * much it has read, and in the end what sha256 makes of all of them, and the frame
 * that they were packed into or how many lines they are.
 */
import { createHash } from "node:crypto";
import { parentPort, workerData } from "node:worker_threads";
import { linesIn } from "../../infra/lines-in.mjs";
import { FrameParts } from "./frame-parts.mjs";

const hash = createHash("sha256");
let lines = 0;
const frame = workerData.level === null ? null : new FrameParts(workerData.level);

parentPort.on("message", (message) => {
  if (message === null) {
    const packed = frame?.end() ?? [];
    const given = packed.map(({ buffer }) => buffer);
    parentPort.postMessage({ hashed: { hex: hash.digest("hex"), packed, lines } }, given);
    return;
  }
  let read = 0;
  for (const piece of message.pieces) {
    hash.update(piece);
    if (frame) frame.add(piece);
    else lines += linesIn(piece);
    read += piece.length;
  }
  parentPort.postMessage({ read });
});
