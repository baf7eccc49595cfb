/**
 * The code of the thread that thread.ts starts. It registers a loader for TypeScript first and then imports egress, since
 * the flags of the process (of tsx, of a test runner) are not passed on to the thread.
 */
import { parentPort, workerData } from "node:worker_threads";
import { register } from "tsx/esm/api";

register();
const { createEgress } = await import("./create.ts");
const { resolveTo } = await import("./address.ts");
const { ownLoop: loop } = await import("../loop-watch.ts");

const { resolveTo: address, ...options } = workerData;
const egress = createEgress({ ...options, loop, ...(address === undefined ? {} : { resolve: resolveTo(address) }) });
/** The controller that aborts each running fetch, by the request's id. */
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
