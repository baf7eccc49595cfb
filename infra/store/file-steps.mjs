/**
 * Steps over many files, synchronous: a call costs a third of one through the thread pool. Plain JavaScript, so that a
 * thread of its own (file-batch.ts) reads it without a loader. Each answers the error code of every file, or null.
 */
import { closeSync, linkSync, openSync, unlinkSync, writeSync } from "node:fs";

const codeOf = (step) => {
  try {
    step();
    return null;
  } catch (error) {
    if (typeof error.code === "string") return error.code;
    throw error;
  }
};

/** Files that must not exist yet, with their bytes; not synced. */
export const writeNew = (files) =>
  files.map(({ path, bytes }) =>
    codeOf(() => {
      const file = openSync(path, "wx", 0o644);
      try {
        for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, bytes.length - at);
      } finally {
        closeSync(file);
      }
    }),
  );

/** A second name for each file, and the first one gone; EEXIST where the name is taken. */
export const moveNew = (files) =>
  files.map(({ from, to }) => {
    const code = codeOf(() => linkSync(from, to));
    codeOf(() => unlinkSync(from));
    return code;
  });
