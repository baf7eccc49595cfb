import {
  type DataType,
  Field,
  Float64,
  List,
  Table,
  tableFromIPC,
  tableToIPC,
  Utf8,
  vectorFromArray,
} from "apache-arrow";
import type { VolatileRow } from "./volatile.ts";

const text = new Utf8();
/** Counts and times are doubles: integers below 2^53, read back as plain numbers. */
const number = new Float64();
const texts = new List(new Field("item", text, false));

/** Columns in order. The set may grow: a reader takes the ones it knows and refuses a table that lacks an old one. */
const COLUMNS: { [name in keyof VolatileRow]: DataType } = {
  capability_id: text,
  url: text,
  method: text,
  probes: number,
  answered: number,
  asked_for_payment: number,
  first_seen: number,
  last_seen: number,
  price: text,
  asset: text,
  networks: texts,
  unit: text,
  pay_to: text,
  asked_pay_to: text,
  pay_tos: texts,
  pay_tos_before: texts,
  pay_tos_listed: texts,
  protocols: texts,
  networks_listed: texts,
  distinct_prices: number,
  paid_calls: number,
  unserved: number,
  unserved_since: number,
  observations_since: number,
  withdrawn_since: number,
  defects: text,
  said: text,
};
const NAMES = Object.keys(COLUMNS) as (keyof VolatileRow)[];
/** Columns that came later, and what a table without one says there: it was written before. */
const LATER: { [name in keyof VolatileRow]?: (row: Partial<VolatileRow>) => VolatileRow[name] } = {
  networks_listed: () => NONE,
  unit: () => null,
  asked_pay_to: ({ pay_to }) => pay_to ?? null,
  pay_tos: ({ pay_to }) => (pay_to == null ? NONE : [pay_to]),
  pay_tos_before: () => NONE,
  pay_tos_listed: () => NONE,
  unserved: () => 0,
  unserved_since: () => null,
};
/** One empty list for all rows: most lists of most rows are empty, and a replica holds millions of rows. */
const NONE: string[] = Object.freeze([]) as unknown as string[];

/** Bytes that are no volatile table, or one without a column that we need. */
export class BadVolatile extends Error {
  constructor(why: string, cause?: unknown) {
    super(`volatile table: ${why}`, { cause });
    this.name = "BadVolatile";
  }
}

/** Rows as one Arrow IPC file. */
export function encodeVolatile(rows: readonly VolatileRow[]): Uint8Array {
  const columns = NAMES.map((name) => [
    name,
    vectorFromArray(
      rows.map((row) => row[name]),
      COLUMNS[name],
    ),
  ]);
  return tableToIPC(new Table(Object.fromEntries(columns)), "file");
}

/** @throws BadVolatile */
export function decodeVolatile(bytes: Uint8Array): VolatileRow[] {
  let table: Table;
  try {
    table = tableFromIPC(bytes);
  } catch (error) {
    throw new BadVolatile("no Arrow file", error);
  }
  const columns = NAMES.map((name) => {
    const column = table.getChild(name);
    if (!column && LATER[name]) return null;
    if (!column) throw new BadVolatile(`no column ${name}`);
    return column;
  });
  const rows: VolatileRow[] = [];
  for (let i = 0; i < table.numRows; i++) {
    const row: Record<string, unknown> = {};
    for (const [at, name] of NAMES.entries()) {
      const column = columns[at];
      if (column) row[name] = COLUMNS[name] === texts ? listOf(column.get(i)) : column.get(i);
      else row[name] = LATER[name]?.(row);
    }
    rows.push(row as unknown as VolatileRow);
  }
  return rows;
}

function listOf(value: unknown): string[] {
  const list = [...((value ?? []) as Iterable<string>)];
  return list.length > 0 ? list : NONE;
}
