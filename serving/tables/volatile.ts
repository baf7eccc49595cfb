import { z } from "zod";
import type { Store } from "../../infra/store/store.ts";
import { VIEW } from "../../pipelines/4-publish/objects.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { decodeVolatile } from "../../pipelines/record/volatile-arrow.ts";
import { wentBack } from "./positions.ts";
import type { Volatile } from "./view.ts";

const ViewFile = z.looseObject({
  v: z.literal(1),
  at: z.string(),
  index: z.string().nullable(),
  tree_size: z.int().min(0),
  live: z.array(z.string()).max(64),
  positions: z.record(z.string(), z.record(z.string(), z.int().min(0))),
  history: z.looseObject({ files: z.record(z.string().regex(/^\d{1,2}$/), z.string()) }).optional(),
});

const MAX_VIEW_BYTES = 1024 * 1024;

/**
 * The volatile rows that `live/view.json` names now; the old ones when it is the same view, there is none, or its
 * positions went back (a lake that is being rebuilt counts up again from nothing; nobody is shown that).
 * @throws when the view or a file of it cannot be read: files are replaced every few seconds, the next look finds the new ones.
 */
export async function loadVolatile(store: Pick<Store, "get">, old: Volatile): Promise<Volatile> {
  const object = await store.get(VIEW, { maxBytes: MAX_VIEW_BYTES });
  if (!object || object.etag === old.etag) return old;
  const file = ViewFile.parse(JSON.parse(Buffer.from(object.bytes).toString("utf8")));
  if (wentBack(old.positions, file.positions)) return old;
  const tables = new Map<string, readonly VolatileRow[]>();
  for (const key of file.live) tables.set(key, old.tables.get(key) ?? (await readTable(store, key)));
  const rows = new Map<string, VolatileRow>();
  for (const table of tables.values()) for (const row of table) rows.set(row.capability_id, row);
  const history = new Map(Object.entries(file.history?.files ?? {}).map(([bucket, key]) => [Number(bucket), key]));
  return { etag: object.etag, treeSize: file.tree_size, positions: file.positions, tables, rows, history };
}

async function readTable(store: Pick<Store, "get">, key: string): Promise<readonly VolatileRow[]> {
  const table = await store.get(key);
  if (!table) throw new Error(`${VIEW} names ${key}, which is not there`);
  return decodeVolatile(table.bytes);
}
