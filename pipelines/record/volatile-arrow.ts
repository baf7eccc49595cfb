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

const textType = new Utf8();
/** Counts and times are doubles, which hold integers below 2^53 exactly and are read back as plain numbers. */
const numberType = new Float64();
const textListType = new List(new Field("item", textType, false));

/** Columns in order. Reading a file that lacks one of them fails, except for {@link OPTIONAL}; others are ignored. */
const COLUMNS: { [name in keyof VolatileRow]-?: DataType } = {
  capability_id: textType,
  url: textType,
  method: textType,
  probes: numberType,
  answered: numberType,
  asked_for_payment: numberType,
  last_state: textType,
  last_status: numberType,
  first_seen: numberType,
  last_seen: numberType,
  price: textType,
  asset: textType,
  networks: textListType,
  unit: textType,
  pay_to: textType,
  asked_pay_to: textType,
  pay_tos: textListType,
  pay_tos_before: textListType,
  pay_tos_listed: textListType,
  protocols: textListType,
  networks_listed: textListType,
  distinct_prices: numberType,
  paid_calls: numberType,
  unserved: numberType,
  unserved_since: numberType,
  thefts: textType,
  retried: textType,
  retried_at: numberType,
  payments: textType,
  card_leaf: numberType,
  observations_since: numberType,
  withdrawn_since: numberType,
  defects: textType,
  corrected: textType,
  request: textType,
};
const NAMES = Object.keys(COLUMNS) as (keyof VolatileRow)[];
/** Columns that files of the previous version lack. */
const OPTIONAL = ["card_leaf"] as const;
/** The empty list that all rows share, since most lists are empty and a process holds millions of rows in memory. */
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
  const { rowCount, columns } = readColumns("volatile table", bytes, NAMES, OPTIONAL);
  for (let i = 0; i < rowCount; i++) {
    const row: Record<string, unknown> = {};
    for (const [name, column] of columns) {
      const value: unknown = column.get(i);
      row[name] = COLUMNS[name] === textListType ? toTextList(value) : value;
    }
    yield row as unknown as VolatileRow;
  }
}

function toTextList(value: unknown): string[] {
  const list = [...((value ?? []) as Iterable<string>)];
  return list.length > 0 ? list : EMPTY_LIST;
}
