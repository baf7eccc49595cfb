/**
 * The thread of hashing.ts. Plain JavaScript, so that it starts without a loader. Takes pieces of one text, says of each
 * when it was read, and in the end what sha256 makes of all of them.
 */
import { createHash } from "node:crypto";
import { parentPort } from "node:worker_threads";

const hash = createHash("sha256");

parentPort.on("message", (piece) => {
  if (piece === null) {
    parentPort.postMessage({ hex: hash.digest("hex") });
    return;
  }
  hash.update(piece);
  parentPort.postMessage({ read: piece.length });
});
