/**
 * The thread of thread.ts. What fetches is TypeScript, so a loader comes before it: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
import { parentPort, workerData } from "node:worker_threads";
import { register } from "tsx/esm/api";

register();
const { createEgress } = await import("./create.ts");
const { resolveTo } = await import("./address.ts");
const { ownLoop: loop } = await import("../loop-watch.ts");

const { resolveTo: address, ...options } = workerData;
const egress = createEgress({ ...options, loop, ...(address === undefined ? {} : { resolve: resolveTo(address) }) });
/** How to call off what is under way, by its number. */
const underway = new Map();

parentPort.on("message", async ({ id, request, off }) => {
  if (off) {
    underway.get(id)?.abort();
    return;
  }
  const stop = new AbortController();
  underway.set(id, stop);
  try {
    const result = await egress.fetch({ ...request, signal: stop.signal });
    parentPort.postMessage({ id, result }, result.body ? [result.body.buffer] : []);
  } catch (error) {
    parentPort.postMessage({ id, error });
  } finally {
    underway.delete(id);
  }
});
