import { once } from "node:events";
import { Worker } from "node:worker_threads";
import * as steps from "./file-steps.mjs";

/** Codes of the errors, file by file; null where there was none. */
export type Codes = (string | null)[];

/** Many files in one step each. One step at a time. */
export interface FileBatch {
  /** Files that must not exist yet. Bytes and names are volatile until synced. */
  write(files: readonly { path: string; bytes: Uint8Array }[]): Promise<Codes>;
  /** A second name for each, and the first one gone: EEXIST where `to` is taken, ENOENT where `from` is not there. */
  move(files: readonly { from: string; to: string }[]): Promise<Codes>;
  close(): Promise<void>;
}

/** So few are done where they are, in some milliseconds; a thread takes longer to start. */
const FEW = 64;
const FEW_BYTES = 4 * 1024 * 1024;

/** The same for this machine's disk: in a thread, so that nobody waits for a disk that is slow. */
export function openFileBatch(): FileBatch {
  let thread: { worker: Worker; gone: Promise<never> } | null = null;
  const ask = async (step: "writeNew" | "moveNew", files: readonly object[]): Promise<Codes> => {
    thread ??= begun();
    const answer = once(thread.worker, "message");
    // A thread that dies is told of by `gone`.
    answer.catch(() => undefined);
    thread.worker.postMessage({ step, files });
    return ((await Promise.race([answer, thread.gone])) as [Codes])[0];
  };
  return {
    async write(files) {
      const few = files.length < FEW && files.reduce((sum, { bytes }) => sum + bytes.length, 0) < FEW_BYTES;
      return few ? steps.writeNew(files) : ask("writeNew", files);
    },
    move: async (files) => (files.length < FEW ? steps.moveNew(files) : ask("moveNew", files)),
    async close() {
      await thread?.worker.terminate();
      thread = null;
    },
  };
}

function begun() {
  // The flags of a test runner or loader are not for this thread: it needs none.
  const worker = new Worker(new URL("./file-worker.mjs", import.meta.url), { execArgv: [] });
  const gone = once(worker, "exit").then((): never => {
    throw new Error("a thread that writes files ended");
  });
  // Nobody may be waiting for it when it ends.
  gone.catch(() => undefined);
  return { worker, gone };
}
