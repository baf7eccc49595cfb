import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";

/**
 * Part of loading a segment, after its records were staged: those of archived days wait until the archive job has looked
 * into the files of their day (settle.ts). Costs one look at a small table where there is none.
 */
export async function holdBack(tx: Statements): Promise<void> {
  if ((await tx.all(sql("61_held_back"))).length > 0) await tx.run(sql("61_hold_back"));
}
