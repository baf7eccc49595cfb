import { AskedThread } from "../asked-thread.ts";
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
/** Memory that both threads see, for one batch: used again, so that none is made and thrown away for each. */
const SHARED_BYTES = 64 * 1024 * 1024;

type Files = readonly { path: string; bytes: Uint8Array }[];

/** The same for this machine's disk: in a thread, so that nobody waits for a disk that is slow. */
export function openFileBatch(): FileBatch {
  let thread: AskedThread | null = null;
  let shared: Buffer | null = null;
  const ask = async (question: object): Promise<Codes> => {
    thread ??= new AskedThread(new URL("./file-worker.mjs", import.meta.url), "writes files");
    return (await thread.ask<{ codes: Codes }>(question)).codes;
  };
  const written = (files: Files, bytes: number): Promise<Codes> => {
    if (bytes > SHARED_BYTES) return ask({ step: "writeNew", files });
    shared ??= Buffer.from(new SharedArrayBuffer(SHARED_BYTES));
    let at = 0;
    const placed = files.map(({ path, bytes: own }) => {
      shared!.set(own, at);
      at += own.length;
      return { path, at: at - own.length, end: at };
    });
    return ask({ step: "writeShared", files: placed, shared: shared.buffer });
  };
  return {
    async write(files) {
      const bytes = files.reduce((sum, one) => sum + one.bytes.length, 0);
      return files.length < FEW && bytes < FEW_BYTES ? steps.writeNew(files) : written(files, bytes);
    },
    move: async (files) => (files.length < FEW ? steps.moveNew(files) : ask({ step: "moveNew", files })),
    async close() {
      await thread?.close();
      [thread, shared] = [null, null];
    },
  };
}
