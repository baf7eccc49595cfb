import { existsSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";

const MAX_BYTES = 256 * 1024 * 1024;

/**
 * Reads a file that was named on the command line.
 * @param maxBytes limit; a larger file is refused before it is read
 * @throws Failure `unreadable` for every error
 */
export async function readNamedFile(file: string, maxBytes = MAX_BYTES): Promise<Buffer> {
  try {
    const { size } = await stat(file);
    if (size > maxBytes) throw new Failure("unreadable", `${file} is larger than ${maxBytes} bytes`);
    return await readFile(file);
  } catch (error) {
    if (error instanceof Failure) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    throw new Failure("unreadable", code === "ENOENT" ? `${file}: there is no such file` : `${file}: ${message}`);
  }
}

/** Checks that a file that was named on the command line exists. @throws Failure `unreadable` */
export function requireNamedFile(file: string): void {
  if (!existsSync(file)) throw new Failure("unreadable", `${file}: there is no such file`);
}

/** Parses a file that was named on the command line as JSON. @throws Failure `unreadable` */
export function parseNamedFile(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure("unreadable", `${file} is not JSON`);
  }
}

/** Reads a file that was named on the command line, and parses it as JSON. @throws Failure `unreadable` */
export const readNamedJsonFile = async (file: string, maxBytes = MAX_BYTES): Promise<unknown> =>
  parseNamedFile(file, (await readNamedFile(file, maxBytes)).toString("utf8"));

/**
 * Checks that the data folder exists. Commands that only read call this first, so that they report a mistyped folder
 * instead of creating it.
 * @throws Failure `unreadable`
 */
export function requireDataFolder({ data_dir, log }: Pick<Config, "data_dir" | "log">): void {
  // With the log of a cluster, the records are not in the data folder, so it may be missing.
  if (log !== null || existsSync(data_dir)) return;
  throw new Failure(
    "unreadable",
    `there is no data folder ${data_dir}: name another with TOUCHSTONE_DATA_DIR or --config, or begin with touchstone start`,
  );
}

/** Opens a resource, runs the work with it, and closes it, also if the work throws. */
export async function withOpen<P extends { close(): Promise<void> }, T>(
  opening: P | Promise<P>,
  work: (opened: P) => Promise<T>,
): Promise<T> {
  const opened = await opening;
  try {
    return await work(opened);
  } finally {
    await opened.close();
  }
}
