import {
  type DataType,
  DateDay,
  Dictionary,
  Float64,
  Int32,
  Int64,
  Table,
  tableToIPC,
  Utf8,
  type Vector,
  vectorFromArray,
} from "apache-arrow";
import { readColumns } from "./arrow-file.ts";
import type { HistoryDay } from "./history.ts";
import { DAY_MS } from "./time.ts";

const double = new Float64();
const micro = new Int64();

/**
 * Columns in order. Prices are whole micro-units, which are exact. The dictionary type stores an id once, however many
 * days it has.
 */
const columnTypes = (): { [name in keyof HistoryDay]: DataType } => ({
  // A dictionary type has an identity of its own, so every table needs a new one.
  capability_id: new Dictionary(new Utf8(), new Int32()),
  day: new DateDay(),
  price_low: micro,
  price_high: micro,
  price_last: micro,
  terms_ms_median: double,
  terms_ms_p95: double,
  paid_ms_median: double,
  paid_ms_p95: double,
  probes: double,
  answered: double,
  paid: double,
  delivered: double,
});
const NAMES = Object.keys(columnTypes()) as (keyof HistoryDay)[];

/** Encodes the rows of one bucket, ascending by capability and day, as one Arrow IPC file. */
export function encodeHistory(rows: readonly HistoryDay[]): Uint8Array {
  const types = columnTypes();
  const columns = NAMES.map((name) => {
    const values = rows.map((row) => (name === "day" ? row.day * DAY_MS : row[name]));
    return [name, vectorFromArray(values, types[name])];
  });
  return tableToIPC(new Table(Object.fromEntries(columns)), "file");
}

/**
 * One bucket's history in memory. It keeps the columns of the file and makes rows only for the endpoint that a caller
 * asks for.
 * @throws Failure
 */
export class HistoryFile {
  readonly rows: number;
  readonly #columns: Record<keyof HistoryDay, Vector>;

  constructor(bytes: Uint8Array) {
    const { rows, columns } = readColumns("history file", bytes, NAMES);
    this.#columns = Object.fromEntries(columns) as Record<keyof HistoryDay, Vector>;
    this.rows = rows;
  }

  /** Days of one endpoint, oldest first; empty when the file does not have it. */
  daysOf(cap: string): HistoryDay[] {
    const days: HistoryDay[] = [];
    for (let row = this.#firstOf(cap); row < this.rows && this.#columns.capability_id.get(row) === cap; row++) {
      const values = NAMES.map((name) => [name, this.#columns[name].get(row) as unknown]);
      const day = Object.fromEntries(values) as HistoryDay;
      day.day = Math.round(day.day / DAY_MS);
      days.push(day);
    }
    return days;
  }

  /** First row whose id is not below `cap`, by binary search: the file is sorted. */
  #firstOf(cap: string): number {
    let low = 0;
    let high = this.rows;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#columns.capability_id.get(middle) as string) < cap) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
