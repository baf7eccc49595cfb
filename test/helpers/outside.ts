import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");
/** Third-party sentences are no part of the repository: in it when somebody put them there, or beside it. */
const PLACES = [join(ROOT, "fixtures/vectors"), resolve(ROOT, "../shared/vectors")];

/** One file of data that others wrote (`wild/..`, `a2a/..`); null, and said loudly, when it is not on this machine. */
export function outsideText(file: string): string | null {
  const place = PLACES.find((one) => existsSync(join(one, file)));
  if (place === undefined) {
    console.warn(`\n*** NOT HERE: ${file} was NOT read by this run (looked in ${PLACES.join(", ")}) ***\n`);
    return null;
  }
  return readFileSync(join(place, file), "utf8");
}

/** One file of the corpus of real listings and 402s. */
export const wildText = (file: string): string | null => outsideText(`wild/${file}`);

/** Its lines, parsed. */
export const wildLines = (file: string): unknown[] | null =>
  wildText(file)
    ?.trim()
    .split("\n")
    .map((line) => JSON.parse(line)) ?? null;
