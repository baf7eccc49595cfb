import { sha256hex } from "../../infra/canonical.ts";
import { forEachYielding } from "../../infra/concurrency.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { inputsDigest, type Sample } from "./sample.ts";

const EMPTY = sha256hex("");

/** Stands before the first member of a line, after the row's id. */
const QUOTE = 0x22;
const NEWLINE = 0x0a;
/** A value that SQL does not print as RFC 8785 does, or a control character. */
const UNPRINTED = "\\u00";

/** Start and end of one line in the engine's output, and the id that lines are sorted by. */
interface Line {
  id: string;
  first: number;
  end: number;
}

/** sha256 of the lines, ascending by id; null where SQL could not print them. @param printed as sql/grade/digest (lines) prints them */
function digestOf(printed: Buffer): string | null {
  if (printed.includes(UNPRINTED)) return null;
  const lines: Line[] = [];
  for (let at = 0; at < printed.length; ) {
    const first = printed.indexOf(QUOTE, at) + 1;
    const end = printed.indexOf(NEWLINE, first) + 1;
    // One character for each byte, so that they compare as bytes do.
    lines.push({ id: printed.toString("latin1", at, first - 1), first, end });
    at = end;
  }
  lines.sort((a, b) => (a.id < b.id ? -1 : 1));
  const sorted = Buffer.allocUnsafe(printed.length);
  let length = 0;
  for (const { first, end } of lines) length += printed.copy(sorted, length, first, end);
  return sha256hex(sorted.subarray(0, length));
}

/** Parameters of the statements that read the rows of a run, unix ms. */
export interface Window {
  window_start: number;
  now: number;
}

/** The rows of one endpoint as the engine printed them. */
export interface Printed {
  ep: number;
  lines: Uint8Array;
}

/**
 * Rows of some endpoints of the chunk, by their number in it: about 350 bytes for each, so not of many at once. An endpoint
 * without a row is not in the answer. All of it is handed out before it resolves: another statement may follow at once.
 */
export async function print(db: Statements, eps: readonly number[], window: Window): Promise<Printed[]> {
  if (eps.length === 0) return [];
  return db.all<Printed>(sql("grade/digest:lines"), { eps: JSON.stringify(eps), ...window });
}

/** Endpoints that are digested between two turns of others: a few milliseconds. */
const DIGESTED_A_TURN = 64;

/** `inputs_digest` of the endpoints that were printed. */
export async function digestsOf(
  db: Statements,
  printed: readonly Printed[],
  window: Window,
): Promise<ReadonlyMap<number, string>> {
  const digests = new Map<number, string>();
  const unprinted: number[] = [];
  const digest = ({ ep, lines }: Printed): void => {
    const made = digestOf(Buffer.from(lines.buffer, lines.byteOffset, lines.byteLength));
    if (made === null) unprinted.push(ep);
    else digests.set(ep, made);
  };
  await forEachYielding(printed, DIGESTED_A_TURN, digest);
  for (const ep of unprinted) digests.set(ep, await slowDigest(db, ep, window));
  return digests;
}

/** Where SQL would print a value unlike RFC 8785, the digest is made here, from the rows. */
async function slowDigest(db: Statements, ep: number, window: Window): Promise<string> {
  const rows = "SELECT * EXCLUDE (ep, cap, counted) FROM grade_rows($window_start, $now) WHERE ep = $ep";
  return inputsDigest(await db.all<Sample>(rows, { ep, ...window }));
}

/** The digest of one endpoint. @param rows how many it has @throws Error where it has rows and they were not printed */
export function digestIn(digests: ReadonlyMap<number, string>, ep: number, rows: number): string {
  const digest = rows === 0 ? EMPTY : digests.get(ep);
  if (digest === undefined) throw new Error("grade: rows of an endpoint were read and not digested");
  return digest;
}
