/**
 * The thread of hashing.ts. Plain JavaScript, so that it starts without a loader. Takes pieces of one text, says how
 * much it has read and gives back the memory that was lent, and in the end what sha256 makes of all of them.
 */
import { createHash } from "node:crypto";
import { parentPort } from "node:worker_threads";

const hash = createHash("sha256");

parentPort.on("message", (message) => {
  if (message === null) {
    parentPort.postMessage({ hex: hash.digest("hex") });
    return;
  }
  let read = 0;
  for (const piece of message.pieces) {
    hash.update(piece);
    read += piece.length;
  }
  parentPort.postMessage({ read, spare: message.lent }, message.lent);
});
