/**
 * A thread of verify-pool.ts. Plain JavaScript, so that it starts without a loader. One message is one batch: `bytes`
 * holds, job after job, 64 bytes of signature and the message; `ends` where each job ends; `keyOf` which of `keys` (raw
 * 32 bytes, validated by the pool) it is under. Answers one byte a job: 1 when the signature holds.
 */
import { verify } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { keyFrom } from "./raw-key.mjs";

parentPort.on("message", ({ ask, bytes, ends, keyOf, keys: raw }) => {
  const used = raw.map(keyFrom);
  const good = new Uint8Array(ends.length);
  let from = 0;
  for (let i = 0; i < ends.length; i++) {
    const signature = bytes.subarray(from, from + 64);
    if (verify(null, bytes.subarray(from + 64, ends[i]), used[keyOf[i]], signature)) good[i] = 1;
    from = ends[i];
  }
  parentPort.postMessage({ ask, good }, [good.buffer]);
});
