import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";

/** Capabilities that were listed once and are not listed now, in order of their ids. */
export const delisted = async (lake: Pick<Lake, "all">): Promise<string[]> =>
  (await lake.all<{ cap: string }>(sql("26_delisted"))).map(({ cap }) => cap);
