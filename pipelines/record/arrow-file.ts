import { type Table, tableFromIPC, type Vector } from "apache-arrow";
import { Failure } from "../../infra/errors.ts";

/** Columns of an Arrow IPC file by name; other columns are ignored. @throws Failure */
export function columnsIn<Name extends string>(what: string, bytes: Uint8Array, names: readonly Name[]) {
  let table: Table;
  try {
    table = tableFromIPC(bytes);
  } catch (cause) {
    throw new Failure("failed", `${what}: no Arrow file`, { cause });
  }
  const columns = names.map((name): [Name, Vector] => {
    const column = table.getChild(name);
    if (!column) throw new Failure("failed", `${what}: no column ${name}`);
    return [name, column];
  });
  return { rows: table.numRows, columns };
}
