import { parse } from "csv-parse/sync";
import { isObject, type JsonObject, parseJson } from "../json.ts";
import { type Rejected, rejectRow } from "./claims.ts";

/** Largest number of rows of one file that are read. An operator has to split a longer list. */
export const MAX_ROWS = 250_000;

/** The rows of a file that were read, and those that were not accepted. */
export interface Rows {
  rows: unknown[];
  rejected: Rejected[];
}

/** Unwraps a row of a catalogue dump, in which each line has a row and its source: `{"source": .., "row": {..}}`. */
const unwrapRow = (value: unknown): unknown =>
  isObject(value) && isObject(value.row) && value.url === undefined && value.resource === undefined ? value.row : value;

/** Reads one JSON value a line. A line that is not JSON is rejected; the other lines are read. */
export function parseNdjson(text: string): Rows {
  const rows: unknown[] = [];
  const rejectedRows: Rejected[] = [];
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const value = parseJson(line);
    if (value === undefined) rejectedRows.push(rejectRow("not_json", line.trim()));
    else if (rows.length >= MAX_ROWS) rejectedRows.push(rejectRow("too_many", value));
    else rows.push(unwrapRow(value));
  }
  return { rows, rejected: rejectedRows };
}

/** Member names of items by the column names that files use. */
const MEMBER_NAMES: Readonly<Record<string, string>> = {
  address: "url",
  uri: "url",
  verb: "method",
  http_method: "method",
  payto: "payTo",
  pay_to: "payTo",
  recipient: "payTo",
  amount: "amount_atomic",
  unit: "price_unit",
  chain: "network",
  token: "asset",
  toolname: "toolName",
  x402version: "x402Version",
  mimetype: "mimeType",
};
const ADDRESS_COLUMNS = ["url", "resource", "endpoint", "path", "href"];

const memberNameOf = (name: string): string => {
  const columnName = name
    .trim()
    .toLowerCase()
    .replace(/[\s-]+/g, "_");
  return Object.hasOwn(MEMBER_NAMES, columnName) ? MEMBER_NAMES[columnName]! : columnName;
};

const guessDelimiter = (line: string): string =>
  [",", ";", "\t"].map((one) => ({ one, n: line.split(one).length })).sort((a, b) => b.n - a.n)[0]!.one;

/** Does the text begin with a line of column names, one of which names an address? */
export function looksLikeCsv(text: string): boolean {
  const firstLine = text.slice(0, 4096).split(/\r?\n/, 1)[0]!;
  const names = firstLine.split(guessDelimiter(firstLine)).map((name) => memberNameOf(name.replace(/^"|"$/g, "")));
  return (
    names.some((name) => ADDRESS_COLUMNS.includes(name)) && names.every((name) => /^[A-Za-z][\w ]{0,60}$/.test(name))
  );
}

/**
 * Reads the rows of a CSV file with a header line and the delimiter `,`, `;` or tab. An empty cell is a missing member.
 */
export function parseCsv(text: string): Rows {
  const rejectedRows: Rejected[] = [];
  const rows = parse(text, {
    columns: (names: string[]) => names.map(memberNameOf),
    delimiter: guessDelimiter(text.slice(0, 4096).split(/\r?\n/, 1)[0]!),
    bom: true,
    trim: true,
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: 1024 * 1024,
    skip_records_with_error: true,
    on_skip: (error, raw) => void rejectedRows.push(rejectRow("not_an_item", raw ?? null, error?.message)),
  }) as Record<string, string>[];
  const filled = rows.map(
    (row): JsonObject => Object.fromEntries(Object.entries(row).filter(([, cell]) => cell !== "")),
  );
  for (const row of filled.splice(MAX_ROWS)) rejectedRows.push(rejectRow("too_many", row));
  return { rows: filled, rejected: rejectedRows };
}

const ADDRESS_LINE = /^(?:[A-Za-z]{3,10}\s+)?https?:\/\/\S+$/;

/** Is the first line that is neither empty nor a comment an address, or a method and an address? */
export const looksLikeLines = (text: string): boolean =>
  ADDRESS_LINE.test(
    text
      .slice(0, 65_536)
      .split("\n")
      .map((line) => line.trim())
      .find((line) => line && !line.startsWith("#")) ?? "",
  );

/** Reads one `URL` or `METHOD URL` a line. A line that begins with `#` is a comment. */
export function parseLines(text: string): Rows {
  const rows = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith("#"));
  return { rows: rows.slice(0, MAX_ROWS), rejected: rows.slice(MAX_ROWS).map((row) => rejectRow("too_many", row)) };
}
