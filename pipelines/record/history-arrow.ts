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

const doubleType = new Float64();
const microType = new Int64();

/**
 * Columns in order. Prices are whole millionths of a dollar, which are exact. The dictionary type stores an
 * endpoint's id once for all its days.
 */
const columnTypes = (): { [name in keyof HistoryDay]: DataType } => ({
  // Every table needs a new dictionary type, since each type object identifies one dictionary.
  capability_id: new Dictionary(new Utf8(), new Int32()),
  day: new DateDay(),
  price_low: microType,
  price_high: microType,
  price_last: microType,
  terms_ms_median: doubleType,
  terms_ms_p95: doubleType,
  paid_ms_median: doubleType,
  paid_ms_p95: doubleType,
  probes: doubleType,
  answered: doubleType,
  paid: doubleType,
  delivered: doubleType,
});
const NAMES = Object.keys(columnTypes()) as (keyof HistoryDay)[];

/**
 * Encodes the rows of one bucket (1/64 of the endpoints, history.ts) as one Arrow IPC file. The rows must ascend by
 * capability id and day.
 */
export function encodeHistory(rows: readonly HistoryDay[]): Uint8Array {
  const types = columnTypes();
  const columns = NAMES.map((name) => {
    const values = rows.map((row) => (name === "day" ? row.day * DAY_MS : row[name]));
    return [name, vectorFromArray(values, types[name])];
  });
  return tableToIPC(new Table(Object.fromEntries(columns)), "file");
}

/**
 * The chart data of one bucket of endpoints. It keeps the file's columns in memory and makes rows only for the
 * endpoint that a caller asks for.
 * @throws Failure
 */
export class HistoryFile {
  /** Number of rows. */
  readonly rows: number;
  readonly #columns: Record<keyof HistoryDay, Vector>;

  constructor(bytes: Uint8Array) {
    const { rowCount, columns } = readColumns("history file", bytes, NAMES);
    this.#columns = Object.fromEntries(columns) as Record<keyof HistoryDay, Vector>;
    this.rows = rowCount;
  }

  /** Returns the days of one endpoint, oldest first; empty if the file does not have the endpoint. */
  daysOf(cap: string): HistoryDay[] {
    const days: HistoryDay[] = [];
    for (
      let rowIndex = this.#firstRowOf(cap);
      rowIndex < this.rows && this.#columns.capability_id.get(rowIndex) === cap;
      rowIndex++
    ) {
      const values = NAMES.map((name) => [name, this.#columns[name].get(rowIndex) as unknown]);
      const day = Object.fromEntries(values) as HistoryDay;
      day.day = Math.round(day.day / DAY_MS);
      days.push(day);
    }
    return days;
  }

  /** Finds the first row whose id is not below `cap`, by binary search, since the file is sorted. */
  #firstRowOf(cap: string): number {
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
