import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import type { Writable } from "node:stream";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { ArchiveUnproven } from "./errors.ts";
import { type Unpacked, unpack } from "./pack.ts";
import { workPath } from "./subjects.ts";

/** What a file has to be. */
export interface Expected {
  key: string;
  contentHash: string;
  unpackedBytes: number;
  rows: number;
}

/**
 * Read a file back through the public store, as any reader gets it, unpack it and hold it against its hash, length and
 * lines.
 * @param sink takes the text while it is not proven yet
 * @param onRead when it is here and nothing is known of it
 * @returns the packed bytes
 * @throws ArchiveUnproven, and what the store throws
 */
export async function readBack(
  publicStore: Pick<Store, "get">,
  { key, contentHash, unpackedBytes, rows }: Expected,
  { sink, onRead }: { sink?: Writable; onRead?: () => void | Promise<void> } = {},
): Promise<Uint8Array> {
  const want = `${rows} lines in ${unpackedBytes} bytes of ${contentHash}`;
  const object = await publicStore.get(key);
  if (!object) throw new ArchiveUnproven(key, want, "no object");
  await onRead?.();
  let got: Unpacked;
  try {
    got = await unpack(object.bytes, unpackedBytes, sink);
  } catch (error) {
    throw new ArchiveUnproven(key, want, (error as Error).message);
  }
  const found = `${got.lines} lines in ${got.unpackedBytes} bytes of ${got.contentHash}`;
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
