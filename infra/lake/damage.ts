import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { Failure } from "../errors.ts";

/** Another process, or another handle of this one, has the file open: DuckDB lets one writer in and no reader beside. */
export class LakeBusy extends Failure {
  constructor(path: string, cause?: unknown) {
    super("busy", `lake ${path}: somebody else has it open`, { cause });
  }
}

/** The disk, the folder or the memory is at fault, not the file: setting it aside would lose a sound one. */
const SURROUNDINGS = /Permission denied|No space left|Out of Memory|Cannot open file|Too many open files|disk quota/i;
const LOCKED = /Could not set lock|Conflicting lock|being used by another process|Unique file handle conflict/i;
/** What a running query says of a file that has gone bad, or of an engine that gave up. */
const BROKEN =
  /Corrupt database file|checksum|database has been invalidated|INTERNAL Error|Failure while replaying WAL/i;

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Does opening fail because somebody holds the file? */
export const isLocked = (error: unknown): boolean => LOCKED.test(messageOf(error));

/**
 * Does this failure to open speak against the file? Everything does that is neither a lock nor the machine: a lake can be
 * rebuilt, so a file of a newer version or with a torn WAL is set aside as well.
 */
export const isDamagedOnOpen = (error: unknown): boolean =>
  !LOCKED.test(messageOf(error)) && !SURROUNDINGS.test(messageOf(error));

/** Does a query's failure mean that the open file, or the engine on it, cannot be trusted any more? */
export const isDamage = (error: unknown): boolean =>
  BROKEN.test(messageOf(error)) || (error instanceof Error && error.cause !== undefined && isDamage(error.cause));

export interface SetAside {
  /** Where the file lies now. */
  file: string;
  reason: string;
}

/**
 * Rename a database file and its WAL to `<path>.damaged`, with the reason in `<path>.damaged.txt`. One is kept, the newest:
 * a crash loop must not fill the disk.
 */
export function setAside(path: string, reason: string): SetAside {
  const file = `${path}.damaged`;
  for (const end of ["", ".wal"]) {
    rmSync(`${file}${end}`, { force: true, recursive: true });
    if (existsSync(`${path}${end}`)) renameSync(`${path}${end}`, `${file}${end}`);
  }
  writeFileSync(`${file}.txt`, `${reason}\n`);
  return { file, reason };
}
