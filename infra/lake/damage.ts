import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { Failure } from "../errors.ts";

/**
 * Thrown when another process, or another handle of this process, has the file open. DuckDB allows one writer and no
 * reader beside it.
 */
export class LakeBusy extends Failure {
  constructor(path: string, cause?: unknown) {
    super("busy", `lake ${path}: somebody else has it open`, { cause });
  }
}

/**
 * Errors that the disk, the folder or the memory causes, not the file. A file must not be set aside because of them.
 */
const ENVIRONMENT_FAULT =
  /Permission denied|No space left|Out of Memory|Cannot open file|Too many open files|disk quota/i;
const LOCKED = /Could not set lock|Conflicting lock|being used by another process|Unique file handle conflict/i;
/** Errors of a running query that show a damaged file or a failed engine. */
const BROKEN =
  /Corrupt database file|checksum|database has been invalidated|INTERNAL Error|Failure while replaying WAL/i;

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Reports whether opening failed because another process holds the file. */
export const isLocked = (error: unknown): boolean => LOCKED.test(messageOf(error));

/**
 * Reports whether a failure to open means that the file is damaged. That holds for every failure except locks and
 * faults of the machine. The lake can be rebuilt, so a file of a newer version or with a torn WAL is set aside too.
 */
export const isDamagedOnOpen = (error: unknown): boolean =>
  !LOCKED.test(messageOf(error)) && !ENVIRONMENT_FAULT.test(messageOf(error));

/** Reports whether a query's failure means that the open file, or the engine on it, can no longer be trusted. */
export const isDamage = (error: unknown): boolean =>
  BROKEN.test(messageOf(error)) || (error instanceof Error && error.cause !== undefined && isDamage(error.cause));

/** A damaged database file that was renamed, and why. */
export interface DamagedFile {
  /** Path of the file after it was renamed. */
  file: string;
  reason: string;
}

/**
 * Renames a database file and its WAL to `<path>.damaged` and writes the reason to `<path>.damaged.txt`. Only the
 * newest damaged file is kept, so that repeated crashes do not fill the disk.
 */
export function setAside(path: string, reason: string): DamagedFile {
  const file = `${path}.damaged`;
  for (const suffix of ["", ".wal"]) {
    rmSync(`${file}${suffix}`, { force: true, recursive: true });
    if (existsSync(`${path}${suffix}`)) renameSync(`${path}${suffix}`, `${file}${suffix}`);
  }
  writeFileSync(`${file}.txt`, `${reason}\n`);
  return { file, reason };
}
