import type { DuckDBBlobValue } from "@duckdb/node-api";
import { sha256hex } from "../../infra/canonical.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { inputsDigest, type Sample } from "./sample.ts";

const EMPTY = sha256hex("");

/** Stands before the first member of a line, after the row's id. */
const QUOTE = 0x22;
const NEWLINE = 0x0a;
/** A value that SQL does not print as RFC 8785 does, or a control character. */
const UNPRINTED = "\\u00";

/** One line in what the engine printed: from where to where it stands, and the id that it is put in order by. */
interface Line {
  id: string;
  first: number;
  end: number;
}

/** sha256 of the lines, ascending by id; null where SQL could not print them. @param printed as sql/39_digest.sql says */
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

/**
 * `inputs_digest` of some endpoints of the chunk, by their number in it. The engine prints about 350 bytes for each row of
 * theirs, so not of many at once. An endpoint without a row is not in the answer.
 */
export async function digestsOf(db: Statements, eps: readonly number[]): Promise<ReadonlyMap<number, string>> {
  const digests = new Map<number, string>();
  if (eps.length === 0) return digests;
  await db.run("SET VARIABLE eps = $eps", { eps: JSON.stringify(eps) });
  await db.run(sql("38_json"));
  const odd: number[] = [];
  for await (const batch of db.batches(sql("39_digest")))
    for (const [ep, lines] of batch.getRows() as [number, DuckDBBlobValue][]) {
      const digest = digestOf(Buffer.from(lines.bytes.buffer, lines.bytes.byteOffset, lines.bytes.byteLength));
      if (digest === null) odd.push(ep);
      else digests.set(ep, digest);
    }
  for (const ep of odd) digests.set(ep, await slowDigest(db, ep));
  return digests;
}

/** Where SQL would print a value unlike RFC 8785, the digest is made here, from the rows. */
async function slowDigest(db: Statements, ep: number): Promise<string> {
  return inputsDigest(
    await db.all<Sample>("SELECT * EXCLUDE (ep, cap, b, counted) FROM grade_rows WHERE ep = $ep", { ep }),
  );
}

/** The digest of an endpoint that may have no row. */
export const digestIn = (digests: ReadonlyMap<number, string>, ep: number): string => digests.get(ep) ?? EMPTY;
