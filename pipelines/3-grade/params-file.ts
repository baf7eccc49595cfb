import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/**
 * This module reads grading-params.json from a file on Node. A browser has no files, so the build of the proof that
 * runs there (serving/client/build.mjs) replaces this module by one that contains the text.
 */
type ParamsFile = typeof import("./grading-params.json");

/**
 * sha256 of the published grading-params.json. Every run contains it, so that grading with other numbers is noticed.
 */
export const PARAMS_SHA256 = "355f7eec67c4c0574da6e4c19e864f5ce34d51c97f63ef9e74c8dafde8814500";

/**
 * Parses the parameters of the method svc-grade-1 from the text of the published file.
 * @throws Error when the text is not that of the published file, so that nothing is graded with other numbers
 */
export function readParams(json: string): ParamsFile {
  const hash = createHash("sha256").update(json).digest("hex");
  if (hash !== PARAMS_SHA256) throw new Error(`grading-params.json is ${hash}, the method needs ${PARAMS_SHA256}`);
  return JSON.parse(json) as ParamsFile;
}

/** Every number of the method. Code in this folder and in sql/ reads them from here and repeats none. */
export const params = readParams(readFileSync(new URL("./grading-params.json", import.meta.url), "utf8"));
