import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../sql/", import.meta.url));
/** Stands before each query of a file that holds several. */
const NAME = /^-- name: (\w+)$/m;
const files = new Map<string, ReadonlyMap<string, string>>();

/** The queries of one file by their names; a file without names is one whole query, under no name. */
function readQueries(file: string): ReadonlyMap<string, string> {
  let text: string;
  try {
    text = readFileSync(`${FOLDER}${file}.sql`, "utf8");
  } catch (error) {
    throw new Error(`sql: no file ${file}.sql in ${FOLDER}`, { cause: error });
  }
  const [whole, ...named] = text.split(NAME);
  if (named.length === 0) return new Map([["", whole!]]);
  // What a split by one group gives: a name, its text, the next name, and so on.
  return new Map(named.flatMap((name, i) => (i % 2 === 0 ? [[name, named[i + 1]!.trim()] as const] : [])));
}

/**
 * Text of `sql/<folder>/<file>.sql`, or of one query of it: `folder/file:query`. Files are read once.
 * @throws Error naming the folder when there is no such file, or the file when it has no such query
 */
export function sql(name: string): string {
  const [file, query = ""] = name.split(":") as [string, string?];
  const queries = files.get(file) ?? readQueries(file);
  files.set(file, queries);
  const text = queries.get(query);
  if (text === undefined) throw new Error(`sql: no query ${name}; ${file}.sql has ${[...queries.keys()].join(", ")}`);
  return text;
}
