import { sha256hex } from "../../infra/canonical.ts";
import { forEachYielding } from "../../infra/concurrency.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { inputsDigest, type Sample } from "./sample.ts";

const EMPTY_DIGEST = sha256hex("");

/** Quotation mark. The first one of a line separates the row's id from the row's JSON text. */
const QUOTE = 0x22;
const NEWLINE = 0x0a;
/**
 * Text that a line contains if SQL cannot write one of its values in RFC 8785 form, or if the value has a control
 * character.
 */
const UNPRINTABLE = "\\u00";

/** Start and end of a row's JSON text in the output of DuckDB, and the row's id, by which lines are sorted. */
interface Line {
  id: string;
  first: number;
  end: number;
}

/**
 * Computes the sha256 over the rows' JSON texts, ascending by id; null if SQL could not write a row in RFC 8785 form.
 * @param printedLines lines as sql/grade/digest (lines) returns them
 */
function digestOfLines(printedLines: Buffer): string | null {
  if (printedLines.includes(UNPRINTABLE)) return null;
  const lines: Line[] = [];
  for (let lineStart = 0; lineStart < printedLines.length; ) {
    const first = printedLines.indexOf(QUOTE, lineStart) + 1;
    const end = printedLines.indexOf(NEWLINE, first) + 1;
    // latin1 makes one character of each byte, so that ids compare as their bytes do.
    lines.push({ id: printedLines.toString("latin1", lineStart, first - 1), first, end });
    lineStart = end;
  }
  lines.sort((a, b) => (a.id < b.id ? -1 : 1));
  const sorted = Buffer.allocUnsafe(printedLines.length);
  let length = 0;
  for (const { first, end } of lines) length += printedLines.copy(sorted, length, first, end);
  return sha256hex(sorted.subarray(0, length));
}

/** Parameters of the statements that read a run's rows: from `window_start` to before `now`, unix ms. */
export interface Window {
  window_start: number;
  now: number;
}

/**
 * The rows of one endpoint as text, which DuckDB made. `ep` is the endpoint's number in its chunk (the endpoints that
 * are graded together).
 */
export interface PrintedRows {
  ep: number;
  lines: Uint8Array;
}

/**
 * Reads the rows of some endpoints of the chunk, given by their numbers, as JSON text. A row takes about 350 bytes,
 * so the caller limits their number. An endpoint without rows is not in the result. The whole result is read before
 * the promise resolves, so that another statement may follow at once.
 */
export async function printRows(db: Statements, eps: readonly number[], window: Window): Promise<PrintedRows[]> {
  if (eps.length === 0) return [];
  return db.all<PrintedRows>(sql("grade/digest:lines"), { eps: JSON.stringify(eps), ...window });
}

/**
 * Number of endpoints whose digest is computed before other work gets a turn of the event loop: a few milliseconds of
 * work.
 */
const DIGESTS_PER_TURN = 64;

/** Computes `inputs_digest` of each endpoint of `printedRows`, by its number in the chunk. */
export async function digestsOf(
  db: Statements,
  printedRows: readonly PrintedRows[],
  window: Window,
): Promise<ReadonlyMap<number, string>> {
  const digests = new Map<number, string>();
  const unprintedEndpoints: number[] = [];
  const addDigest = ({ ep, lines }: PrintedRows): void => {
    const digestHex = digestOfLines(Buffer.from(lines.buffer, lines.byteOffset, lines.byteLength));
    if (digestHex === null) unprintedEndpoints.push(ep);
    else digests.set(ep, digestHex);
  };
  await forEachYielding(printedRows, DIGESTS_PER_TURN, addDigest);
  for (const ep of unprintedEndpoints) digests.set(ep, await digestInProcess(db, ep, window));
  return digests;
}

/** Computes a digest from the rows themselves, for an endpoint with a row that SQL cannot write in RFC 8785 form. */
async function digestInProcess(db: Statements, ep: number, window: Window): Promise<string> {
  const rows = "SELECT * EXCLUDE (ep, cap, counted) FROM grade_rows($window_start, $now) WHERE ep = $ep";
  return inputsDigest(await db.all<Sample>(rows, { ep, ...window }));
}

/**
 * Returns the digest of one endpoint.
 * @param rows number of the endpoint's rows
 * @throws Error if the endpoint has rows and no digest of them was computed
 */
export function getDigest(digests: ReadonlyMap<number, string>, ep: number, rows: number): string {
  const digest = rows === 0 ? EMPTY_DIGEST : digests.get(ep);
  if (digest === undefined) throw new Error("grade: rows of an endpoint were read and not digested");
  return digest;
}
