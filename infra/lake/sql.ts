import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const SQL_FOLDER = fileURLToPath(new URL("../../sql/", import.meta.url));
/** Line before each query of a file that holds several queries. */
const QUERY_NAME_LINE = /^-- name: (\w+)$/m;
const files = new Map<string, ReadonlyMap<string, string>>();

/** Reads the queries of one file by name. A file without names is a single query under the empty name. */
function readQueries(file: string): ReadonlyMap<string, string> {
  let text: string;
  try {
    text = readFileSync(`${SQL_FOLDER}${file}.sql`, "utf8");
  } catch (error) {
    throw new Error(`sql: no file ${file}.sql in ${SQL_FOLDER}`, { cause: error });
  }
  const [unnamedText, ...namedParts] = text.split(QUERY_NAME_LINE);
  if (namedParts.length === 0) return new Map([["", unnamedText!]]);
  // Splitting by a pattern with one group gives a name, its text, the next name, and so on.
  return new Map(namedParts.flatMap((name, i) => (i % 2 === 0 ? [[name, namedParts[i + 1]!.trim()] as const] : [])));
}

/**
 * Returns the text of `sql/<folder>/<file>.sql`, or of one query in it: `folder/file:query`. Each file is read once.
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
