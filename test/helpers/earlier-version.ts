import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { decompress } from "zstd-napi";

const FORMS = resolve(import.meta.dirname, "../../fixtures/forms");

/** Unpacks the data folder that a commit left behind. */
export async function unpackEarlier(commit: string, to: string): Promise<void> {
  const tar = spawn("tar", ["x", "-C", to], { stdio: ["pipe", "ignore", "inherit"] });
  tar.stdin.end(decompress(readFileSync(join(FORMS, `${commit}.tar.zst`))));
  const code = await new Promise((done) => tar.once("close", done));
  if (code !== 0) throw new Error(`tar ended with ${String(code)}`);
}

/** What that commit's own code folded from its log. */
export const foldsOfEarlier = (commit: string): { orders: unknown[]; watchers: unknown[] } =>
  JSON.parse(readFileSync(join(FORMS, `${commit}.folds.json`), "utf8"));

/** Path below `dir` -> sha256 of every file, but for the stores' own working files. */
export function bytesBelow(dir: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const name of readdirSync(dir, { recursive: true, encoding: "utf8" }).sort()) {
    const path = join(dir, name);
    if (name.includes(".~store") || /-(?:wal|shm)$|\.work/.test(name) || !statSync(path).isFile()) continue;
    found.set(relative(dir, path), createHash("sha256").update(readFileSync(path)).digest("hex"));
  }
  return found;
}
