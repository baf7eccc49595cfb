import { expect } from "vitest";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { archivedIds } from "./published.ts";

/** Record ids of probes: rows of the lakes, and rows of the archive's standing files. */
export interface Rows {
  lake: string[];
  files: string[];
}

export async function probesIn(lakes: readonly Lake[]): Promise<string[]> {
  const query = "SELECT event_id FROM event WHERE type IN ('handshake', 'mcp.probe')";
  const rows = await Promise.all(lakes.map((lake) => lake.all<{ event_id: string }>(query)));
  return rows.flat().map(({ event_id }) => event_id);
}

export const rowsOf = async (
  lakes: readonly Lake[],
  publicStore: Pick<Store, "get">,
  leaves: readonly Leaf[],
): Promise<Rows> => ({ lake: await probesIn(lakes), files: await archivedIds(publicStore, leaves) });

/** Every row is in a lake or in a file, and none stands twice in lakes or twice in files: at any moment. */
export function expectNothingLost(rows: Rows, everyId: readonly string[]): Rows {
  const { lake, files } = rows;
  expect([...new Set([...lake, ...files])].sort()).toEqual([...everyId].sort());
  expect(new Set(files).size).toBe(files.length);
  expect(new Set(lake).size).toBe(lake.length);
  return rows;
}
