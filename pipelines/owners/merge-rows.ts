import { rm } from "node:fs/promises";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { ArchiveUnproven } from "../5-archive/errors.ts";
import { type Unpacked, unpackFile } from "../5-archive/pack.ts";
import { ROWS_A_FILE, workPath } from "../5-archive/probe-files.ts";
import type { MadeFile } from "../5-archive/subjects.ts";
import { type PartDay, type PartFile, xorOf } from "./archive-parts.ts";

interface Slice {
  rows: number;
  digest: string;
  last_cap: string | null;
  last_id: string | null;
}

/**
 * Files of one subject and day out of what its partitions have: every line as it was put, in the order of (capability,
 * record), as if one lake had held all of them.
 * @param lake nothing of it is kept: an engine and a folder for files
 * @throws ArchiveUnproven when a partition's file is not what it says, or not every row of it came out again
 */
export async function mergeRows(
  lake: Lake,
  store: Pick<Store, "get">,
  days: readonly (readonly [number, PartDay])[],
  rowsAFile = ROWS_A_FILE,
): Promise<MadeFile[]> {
  const all = days.map(([, day]) => day);
  const files = all.flatMap((day) => day.files);
  if (files.length === 0) return [];
  const made = await lake.transaction(async (tx) => {
    await tx.run(sql("71_merged"));
    for (const file of files) await load(tx, lake, store, file);
    const slices = await sliced(tx, lake, rowsAFile);
    await tx.run("DROP TABLE archive_merged");
    return slices;
  });
  const [want, got] = [all, made].map((some) => {
    const rows = some.reduce((sum, one) => sum + one.rows, 0);
    return `${rows} rows of ids ${xorOf(some.map(({ digest }) => digest))}`;
  });
  if (want === got) return made;
  for (const { path } of made) await rm(path, { force: true });
  throw new ArchiveUnproven(files.map(({ key }) => key).join(", "), want!, got!);
}

/** Fetched, unpacked and held against its hash and length before a line of it is believed. */
async function load(tx: Statements, lake: Lake, store: Pick<Store, "get">, file: PartFile): Promise<void> {
  const { key, rows, sha256, content_hash, unpacked_bytes } = file;
  const object = await store.get(key);
  const packed = object === null ? "no object" : sha256hex(object.bytes);
  if (object === null || packed !== sha256) throw new ArchiveUnproven(key, sha256, packed);
  const path = workPath(lake);
  try {
    const got: Unpacked = await unpackFile(object.bytes, path, unpacked_bytes);
    const [want, found] = [
      `${rows} lines in ${unpacked_bytes} bytes of ${content_hash}`,
      `${got.lines} lines in ${got.unpackedBytes} bytes of ${got.contentHash}`,
    ];
    if (found !== want) throw new ArchiveUnproven(key, want, found);
    await tx.run(sql("71_merged_part"), { path });
  } finally {
    await rm(path, { force: true });
  }
}

async function sliced(tx: Statements, lake: Lake, most: number): Promise<MadeFile[]> {
  const files: MadeFile[] = [];
  for (let after = { cap: "", id: "" }; ; ) {
    const [slice] = await tx.all<Slice>(sql("72_merged_slice"), { ...after, most });
    if (!slice || slice.rows === 0) return files;
    const path = workPath(lake);
    await tx.all(sql("72_merged_file"), { ...after, most, path });
    files.push({ path, rows: slice.rows, digest: slice.digest });
    after = { cap: slice.last_cap!, id: slice.last_id! };
  }
}
