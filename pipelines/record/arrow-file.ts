import { type Table, tableFromIPC, type Vector } from "apache-arrow";
import { Failure } from "../../infra/errors.ts";

/**
 * Reads the named columns of an Arrow IPC file; other columns are ignored.
 * @param description name of the file's kind in errors
 * @throws Failure for bytes that are no Arrow file, or if a column is missing
 */
export function readColumns<Name extends string>(description: string, bytes: Uint8Array, names: readonly Name[]) {
  let table: Table;
  try {
    table = tableFromIPC(bytes);
  } catch (cause) {
    throw new Failure("failed", `${description}: no Arrow file`, { cause });
  }
  const columns = names.map((name): [Name, Vector] => {
    const column = table.getChild(name);
    if (!column) throw new Failure("failed", `${description}: no column ${name}`);
    return [name, column];
  });
  return { rows: table.numRows, columns };
}
