import { z } from "zod";
import { forEachYielding } from "../../infra/concurrency.ts";
import type { Store } from "../../infra/store/store.ts";
import { VIEW } from "../../pipelines/published/objects.ts";
import { isAnyPositionLower, type VolatileRow } from "../../pipelines/record/volatile.ts";
import { readVolatileRows } from "../../pipelines/record/volatile-arrow.ts";
import { type FoldedRow, NO_VOLATILE_ROWS, type VolatileRows } from "./view.ts";

const ViewFile = z.looseObject({
  v: z.literal(1),
  at: z.string(),
  index: z.string().nullable(),
  tree_size: z.int().min(0),
  live: z.array(z.string()).max(4096),
  positions: z.record(z.string(), z.record(z.string(), z.int().min(0))),
  history: z.looseObject({ files: z.record(z.string().regex(/^\d{1,2}$/), z.string()) }).optional(),
});

const MAX_VIEW_BYTES = 1024 * 1024;

/** Number of rows applied between two yields to the event loop. They take a few milliseconds. */
const ROWS_PER_TURN = 128;

/** Returns the part of a file's key that all files of one partition's table share. */
const tablePrefix = (key: string): string => key.slice(0, key.indexOf("."));

/**
 * Reads the volatile rows from the files that `live/view.json` names. Normally only new files are read and only their
 * rows change; if the files do not continue those read before, all are read. The old rows are returned when
 * `live/view.json` has not changed, is missing, or states lower log positions than before, as it does while the
 * database that it is made from (the lake) is rebuilt.
 * @returns the volatile rows, and those of them that are new
 * @throws Error when `live/view.json` or one of its files cannot be read; files are replaced every few seconds, so
 * the next call may succeed
 */
export async function loadVolatile(
  store: Pick<Store, "get">,
  old: VolatileRows,
): Promise<{ volatile: VolatileRows; newRows: Iterable<VolatileRow> }> {
  const object = await store.get(VIEW, { maxBytes: MAX_VIEW_BYTES });
  if (!object || object.etag === old.etag) return { volatile: old, newRows: [] };
  const file = ViewFile.parse(JSON.parse(Buffer.from(object.bytes).toString("utf8")));
  if (isAnyPositionLower(old.positions, file.positions)) return { volatile: old, newRows: [] };
  const { newRows, ...folded } =
    (continuesFrom(old, file.live) && (await fold(store, old, file.live))) ||
    (await fold(store, NO_VOLATILE_ROWS, file.live))!;
  const history = new Map(Object.entries(file.history?.files ?? {}).map(([bucket, key]) => [Number(bucket), key]));
  const madeAt = Date.parse(file.at);
  const facts = {
    etag: object.etag,
    madeAt: Number.isNaN(madeAt) ? null : madeAt,
    treeSize: file.tree_size,
    positions: file.positions,
    history,
  };
  return { volatile: { ...facts, ...folded }, newRows: newRows.values() };
}

/**
 * Returns true if, in each partition's table, the files that were already read come in their former order and before
 * any new ones. Returns false if one of them moved, or stands behind a new one.
 */
function continuesFrom(old: VolatileRows, keys: readonly string[]): boolean {
  const foldedKeys = [...old.files.keys()];
  const position = new Map(foldedKeys.map((key, i) => [key, i]));
  const lastPositions = new Map<string, number>();
  return keys.every((key) => {
    const keyPosition = position.get(key) ?? Number.POSITIVE_INFINITY;
    const lastPosition = lastPositions.get(tablePrefix(key)) ?? -1;
    lastPositions.set(tablePrefix(key), keyPosition);
    return keyPosition > lastPosition || (keyPosition === lastPosition && keyPosition === Number.POSITIVE_INFINITY);
  });
}

/**
 * Applies the rows of the new files, in their order; each replaces the older row of its endpoint. Returns null when a
 * file that is no longer named still holds the newest row of an endpoint: the row before that one is not known any
 * more, so all files have to be read from the beginning.
 */
async function fold(
  store: Pick<Store, "get">,
  old: VolatileRows,
  keys: readonly string[],
): Promise<
  (Pick<VolatileRows, "files" | "rows" | "thefts" | "withdrawn"> & { newRows: ReadonlyMap<string, FoldedRow> }) | null
> {
  const newRows = new Map<string, FoldedRow>();
  const theftRows = new Map<string, VolatileRow>();
  const withdrawn = new Set(old.withdrawn);
  const rowCounts = new Map(old.files);
  const addCount = (file: string, change: number) => rowCounts.set(file, (rowCounts.get(file) ?? 0) + change);
  for (const key of keys) {
    if (old.files.has(key)) continue;
    addCount(key, 0);
    const foldRow = (row: VolatileRow): void => {
      const olderRow = newRows.get(row.capability_id) ?? old.rows.get(row.capability_id);
      if (olderRow) addCount(olderRow.file, -1);
      newRows.set(row.capability_id, Object.assign(row, { file: key }));
      if (row.thefts !== null || theftRows.has(row.capability_id) || old.thefts.has(row.capability_id))
        theftRows.set(row.capability_id, row);
      if (row.withdrawn_since > 0) withdrawn.add(row.capability_id);
      else withdrawn.delete(row.capability_id);
      addCount(key, 1);
    };
    await forEachYielding(await readTable(store, key), ROWS_PER_TURN, foldRow);
  }
  const files = new Map(keys.map((key) => [key, rowCounts.get(key) ?? 0]));
  for (const [key, rowCount] of rowCounts) if (rowCount > 0 && !files.has(key)) return null;
  return { files, rows: old.rows.with(newRows), thefts: old.thefts.with(theftRows.values()), withdrawn, newRows };
}

async function readTable(store: Pick<Store, "get">, key: string): Promise<Iterable<VolatileRow>> {
  const table = await store.get(key);
  if (!table) throw new Error(`${VIEW} names ${key}, which is not there`);
  return readVolatileRows(table.bytes);
}
