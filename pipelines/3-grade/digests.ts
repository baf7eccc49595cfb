import { sha256hex } from "../../infra/canonical.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { inputsDigest, type Sample } from "./sample.ts";

const EMPTY = sha256hex("");

/**
 * `inputs_digest` of some endpoints of the chunk, by their number in it. The engine prints about 80 KB for each, so not
 * of many at once. An endpoint without a row is not in the answer.
 */
export async function digestsOf(db: Statements, eps: readonly number[]): Promise<ReadonlyMap<number, string>> {
  const digests = new Map<number, string>();
  if (eps.length === 0) return digests;
  await db.run("SET VARIABLE eps = $eps", { eps: JSON.stringify(eps) });
  await db.run(sql("39_digest"));
  for (const { ep, digest } of await db.all<{ ep: number; digest: string | null }>("FROM grade_digest"))
    digests.set(ep, digest ?? (await slowDigest(db, ep)));
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
