import { existsSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";

/**
 * A file that was named on the command line: one sentence and one exit code for whatever keeps it from being read.
 * @param maxBytes larger ones are refused unread
 * @throws Failure `unreadable`
 */
export async function readNamed(file: string, maxBytes = 256 * 1024 * 1024): Promise<Buffer> {
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

/** The same as JSON. @throws Failure `unreadable` */
export async function readNamedJson(file: string): Promise<unknown> {
  const bytes = await readNamed(file);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    throw new Failure("unreadable", `${file} is no JSON`);
  }
}

/**
 * What only reads makes no folder: a wrong directory or setting shows at once, and leaves nothing behind.
 * @throws Failure `unreadable`
 */
export function needsData({ data_dir, log }: Pick<Config, "data_dir" | "log">): void {
  // Machines of a cluster share the log; a folder of their own may be empty.
  if (log !== null || existsSync(data_dir)) return;
  throw new Failure(
    "unreadable",
    `there is no data folder ${data_dir}: name another with TOUCHSTONE_DATA_DIR or --config, or begin with touchstone start`,
  );
}

/** What was opened, for the work alone: closed however that ends. */
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
