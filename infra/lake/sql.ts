import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../sql/", import.meta.url));
const texts = new Map<string, string>();

/** Text of `sql/<name>.sql`, read once. @throws Error naming the folder when there is no such file. */
export function sql(name: string): string {
  const known = texts.get(name);
  if (known !== undefined) return known;
  let text: string;
  try {
    text = readFileSync(`${FOLDER}${name}.sql`, "utf8");
  } catch (error) {
    throw new Error(`sql: no file ${name}.sql in ${FOLDER}`, { cause: error });
  }
  texts.set(name, text);
  return text;
}
