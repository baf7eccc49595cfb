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
  pay_to: text,
  protocols: texts,
  networks_listed: texts,
  distinct_prices: number,
  paid_calls: number,
  observations_since: number,
  withdrawn_since: number,
  defects: text,
  said: text,
  request: text,
};
const NAMES = Object.keys(COLUMNS) as (keyof VolatileRow)[];
/** Columns that came later: a table without one was written before, and says nothing there. */
const LATER: ReadonlySet<keyof VolatileRow> = new Set(["networks_listed", "request"] as const);

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
    if (!column && LATER.has(name)) return null;
    if (!column) throw new BadVolatile(`no column ${name}`);
    return column;
  });
  const rows: VolatileRow[] = [];
  for (let i = 0; i < table.numRows; i++) {
    const row: Record<string, unknown> = {};
    for (const [at, name] of NAMES.entries()) {
      const value: unknown = columns[at]?.get(i);
      row[name] = COLUMNS[name] === texts ? [...((value ?? []) as Iterable<string>)] : (value ?? null);
    }
    rows.push(row as unknown as VolatileRow);
  }
  return rows;
}
