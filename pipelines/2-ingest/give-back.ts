import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";

/**
 * Rows of every partition but these leave the lake, all in one transaction: their owner has them now, from the chain.
 * Costs one look when there is nothing to do. @param partitions of the log
 */
export async function giveBack(lake: Lake, held: readonly number[], partitions: number): Promise<void> {
  const known = await lake.all<{ part: number }>("SELECT DISTINCT part FROM positions UNION SELECT part FROM loaded");
  const given = known.map(({ part }) => part).filter((part) => !held.includes(part));
  if (given.length === 0) return;
  await lake.transaction(async (tx) => {
    // Made by the first grade of a lake.
    await tx.run(
      "CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP)",
    );
    const place = { given, held, shift: 6 - Math.log2(partitions) };
    await tx.run("SET VARIABLE given = $place", { place: JSON.stringify(place) });
    await tx.run(sql("29_give_back"));
    await tx.run(sql("69_shapes_left"));
    // Asks lie where their host does, whatever capability they name: what is left of them says what is still known.
    await tx.run("CREATE OR REPLACE TEMP TABLE stage AS FROM event WHERE topic = 'asks'");
    await tx.run("DELETE FROM asked; DELETE FROM looked; DELETE FROM demand");
    await tx.run(sql("46_asks"));
    // Also of a partition that was given back before, whose ask lay in one that is given back now.
    await tx.run(
      "DELETE FROM endpoint WHERE part_of(cap) NOT IN (FROM still_held) AND cap NOT IN (SELECT cap FROM asked)",
    );
  });
}
