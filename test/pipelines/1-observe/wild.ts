import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../../..");
/** The corpus is third-party data and not part of the repository: in it when somebody put it there, or beside it. */
const PLACES = [join(ROOT, "fixtures/vectors/wild"), resolve(ROOT, "../shared/vectors/wild")];

/** One file of the corpus of real listings and 402s; null, and said loudly, when it is not on this machine. */
export function wildText(file: string): string | null {
  const place = PLACES.find((one) => existsSync(join(one, file)));
  if (place === undefined) {
    console.warn(
      `\n*** THE WILD CORPUS IS NOT HERE: ${file} was NOT read by this run (looked in ${PLACES.join(", ")}) ***\n`,
    );
    return null;
  }
  return readFileSync(join(place, file), "utf8");
}

/** Its lines, parsed. */
export const wildLines = (file: string): unknown[] | null =>
  wildText(file)
    ?.trim()
    .split("\n")
    .map((line) => JSON.parse(line)) ?? null;
