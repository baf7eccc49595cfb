import { type Table, tableFromIPC, type Vector } from "apache-arrow";

/** The bytes are no Arrow file, or a column that is needed is missing. */
export class BadTable extends Error {
  override readonly name = "BadTable";
}

/** Columns of an Arrow IPC file by name; other columns are ignored. @throws BadTable */
export function columnsIn<Name extends string>(what: string, bytes: Uint8Array, names: readonly Name[]) {
  let table: Table;
  try {
    table = tableFromIPC(bytes);
  } catch (cause) {
    throw new BadTable(`${what}: no Arrow file`, { cause });
  }
  const columns = names.map((name): [Name, Vector] => {
    const column = table.getChild(name);
    if (!column) throw new BadTable(`${what}: no column ${name}`);
    return [name, column];
  });
  return { rows: table.numRows, columns };
}
