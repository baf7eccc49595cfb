import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { MadeFile } from "./subjects.ts";

/** A file in the lake's work folder, under a name that nobody had before; it is emptied at every start. */
export const workPath = (lake: Pick<Lake, "workDir">): string =>
  join(lake.workDir, `archive-${randomBytes(8).toString("hex")}`);

/** Made files that are put, or will not be. */
export async function removeFiles(files: readonly Pick<MadeFile, "path">[]): Promise<void> {
  for (const { path } of files) await rm(path, { force: true });
}
