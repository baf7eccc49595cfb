import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import type { Writable } from "node:stream";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { ArchiveUnproven } from "./errors.ts";
import type { Hashing } from "./hashing.ts";
import { LineIds } from "./line-ids.ts";
import { type Unpacked, unpack } from "./pack.ts";
import { workPath } from "./work-files.ts";

/** What a file has to be. */
export interface Expected {
  key: string;
  contentHash: string;
  unpackedBytes: number;
  rows: number;
  /** Of the ids that its lines tell (line-ids.ts), where they are the names of rows that will leave. */
  told?: string;
}

/**
 * Read a file back through the public store, as any reader gets it, unpack it and hold it against its hash, length, lines
 * and the ids that they tell.
 * @param sink takes the text while it is not proven yet
 * @param onRead when it is here and nothing is known of it
 * @param hash see unpack
 * @returns the packed bytes
 * @throws ArchiveUnproven, and what the store throws
 */
export async function readBack(
  publicStore: Pick<Store, "get">,
  { key, contentHash, unpackedBytes, rows, told }: Expected,
  { sink, onRead, hash }: { sink?: Writable; onRead?: () => void | Promise<void>; hash?: Hashing } = {},
): Promise<Uint8Array> {
  const ids = told === undefined ? undefined : new LineIds();
  const want = `${rows} lines in ${unpackedBytes} bytes of ${contentHash}${told ? `, ids of ${told}` : ""}`;
  const object = await publicStore.get(key);
  if (!object) throw new ArchiveUnproven(key, want, "no object");
  await onRead?.();
  let got: Unpacked;
  try {
    got = await unpack(object.bytes, unpackedBytes, { sink, ids, hash });
  } catch (error) {
    throw new ArchiveUnproven(key, want, (error as Error).message);
  }
  const read = ids ? `, ids of ${ids.digest()}` : "";
  const found = `${got.lines} lines in ${got.unpackedBytes} bytes of ${got.contentHash}${read}`;
  if (found !== want) throw new ArchiveUnproven(key, want, found);
  return object.bytes;
}

/** The file that a leaf names, proven against it. @returns where its text lies: the caller removes it @throws ArchiveUnproven */
export async function readNamed(
  publicStore: Pick<Store, "get">,
  lake: Pick<Lake, "workDir">,
  { manifest, sha256, unpacked_bytes }: ArchiveLeaf,
): Promise<string> {
  const { subject, rows, content_hash } = manifest;
  const key = archiveFileKey(subject, dayOfManifest(manifest), content_hash);
  const want = { key, contentHash: content_hash, unpackedBytes: unpacked_bytes, rows };
  const path = workPath(lake);
  try {
    const got = sha256hex(await readBack(publicStore, want, { sink: createWriteStream(path) }));
    if (got !== sha256) throw new ArchiveUnproven(key, `packed ${sha256}`, got);
    return path;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  }
}

/** Ids of a file of probes into `archive_ids`. */
export async function loadIds(tx: Statements, path: string): Promise<void> {
  await tx.run("SET VARIABLE archive_path = $path", { path });
  await tx.run(sql("66_archive_read"));
}
