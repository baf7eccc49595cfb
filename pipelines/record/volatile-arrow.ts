import {
  type DataType,
  Field,
  Float64,
  List,
  Table,
  tableToIPC,
  Utf8,
  type Vector,
  vectorFromArray,
} from "apache-arrow";
import { forEachYielding } from "../../infra/concurrency.ts";
import { readColumns } from "./arrow-file.ts";
import type { VolatileRow } from "./volatile.ts";

const text = new Utf8();
/** Counts and times are doubles, which hold integers below 2^53 exactly and are read back as plain numbers. */
const number = new Float64();
const texts = new List(new Field("item", text, false));

/** Columns in order. Reading a file that lacks one of them fails; other columns are ignored. */
const COLUMNS: { [name in keyof VolatileRow]: DataType } = {
  capability_id: text,
  url: text,
  method: text,
  probes: number,
  answered: number,
  asked_for_payment: number,
  last_state: text,
  last_status: number,
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
  thefts: text,
  retried: text,
  retried_at: number,
  payments: text,
  observations_since: number,
  withdrawn_since: number,
  defects: text,
  corrected: text,
  request: text,
};
const NAMES = Object.keys(COLUMNS) as (keyof VolatileRow)[];
/** One empty list for all rows: most lists are empty, and a replica holds millions of rows. */
const EMPTY_LIST: string[] = Object.freeze([]) as unknown as string[];

/**
 * Encodes rows as one Arrow IPC file. It yields to the event loop after each column, since a full table takes hundreds
 * of milliseconds.
 */
export async function encodeVolatile(rows: readonly VolatileRow[]): Promise<Uint8Array> {
  const columns: Record<string, Vector> = {};
  await forEachYielding(NAMES, 1, (name) => {
    const values = rows.map((row) => row[name]);
    columns[name] = vectorFromArray(values, COLUMNS[name]);
  });
  return tableToIPC(new Table(columns), "file");
}

/**
 * Yields the rows of an Arrow IPC file of {@link encodeVolatile}. Each row is built when the caller reaches it.
 * @throws Failure, before the first row, for bytes that are no Arrow file or lack a column
 */
export function* readVolatileRows(bytes: Uint8Array): Generator<VolatileRow> {
  const { rows, columns } = readColumns("volatile table", bytes, NAMES);
  for (let i = 0; i < rows; i++) {
    const row: Record<string, unknown> = {};
    for (const [name, column] of columns) {
      const value: unknown = column.get(i);
      row[name] = COLUMNS[name] === texts ? listOf(value) : value;
    }
    yield row as unknown as VolatileRow;
  }
}

function listOf(value: unknown): string[] {
  const list = [...((value ?? []) as Iterable<string>)];
  return list.length > 0 ? list : EMPTY_LIST;
}
