import { type Table, tableFromIPC, type Vector } from "apache-arrow";
import { Failure } from "../../infra/errors.ts";

/**
 * Reads the named columns of an Arrow IPC file; other columns are ignored.
 * @param description name of the file's kind in errors
 * @param optional those of the names that older files lack; a missing one is left out of the result
 * @throws Failure for bytes that are no Arrow file, or if any other column is missing
 */
export function readColumns<Name extends string>(
  description: string,
  bytes: Uint8Array,
  names: readonly Name[],
  optional: readonly Name[] = [],
) {
  let table: Table;
  try {
    table = tableFromIPC(bytes);
  } catch (cause) {
    throw new Failure("failed", `${description}: no Arrow file`, { cause });
  }
  const columns = names.flatMap((name): [Name, Vector][] => {
    const column = table.getChild(name);
    if (column) return [[name, column]];
    if (optional.includes(name)) return [];
    throw new Failure("failed", `${description}: no column ${name}`);
  });
  return { rowCount: table.numRows, columns };
}
