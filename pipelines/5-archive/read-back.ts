import { closeSync, openSync, writeSync } from "node:fs";
import { rm } from "node:fs/promises";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import { streamFrame } from "../../infra/zstd.ts";
import { TextFacts, type TextOfLines } from "../published/lines.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { ArchiveUnproven } from "./errors.ts";
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
 * @param onRead when it is here and nothing is known of it
 * @param onText told of the text, piece by piece, while it is not proven yet; may not keep it
 * @returns the packed bytes
 * @throws ArchiveUnproven, and what the store throws
 */
export async function readBack(
  publicStore: Pick<Store, "get">,
  { key, contentHash, unpackedBytes, rows }: Expected,
  onRead: () => void | Promise<void> = () => undefined,
  onText: (piece: Uint8Array) => void = () => undefined,
): Promise<Uint8Array> {
  const want = `${rows} lines in ${unpackedBytes} bytes of ${contentHash}`;
  const object = await publicStore.get(key);
  if (!object) throw new ArchiveUnproven(key, want, "no object");
  await onRead();
  const found = described(await factsOf(object.bytes, unpackedBytes, onText));
  if (found !== want) throw new ArchiveUnproven(key, want, found);
  return object.bytes;
}

const described = (text: TextOfLines | { got: string }): string =>
  "got" in text ? text.got : `${text.lines} lines in ${text.size} bytes of ${text.sha256}`;

async function factsOf(
  packed: Uint8Array,
  maxBytes: number,
  onText: (piece: Uint8Array) => void,
): Promise<TextOfLines | { got: string }> {
  const facts = new TextFacts(0);
  try {
    await streamFrame(packed, maxBytes, (piece) => {
      facts.add(piece);
      onText(piece);
    });
    return facts.end();
  } catch (error) {
    return { got: (error as Error).message };
  }
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
  const file = openSync(path, "wx");
  const write = (piece: Uint8Array) => {
    for (let at = 0; at < piece.length; ) at += writeSync(file, piece, at);
  };
  try {
    const got = sha256hex(await readBack(publicStore, want, undefined, write));
    if (got !== sha256) throw new ArchiveUnproven(key, `packed ${sha256}`, got);
    return path;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}
