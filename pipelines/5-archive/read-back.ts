import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf, GradeLeaf } from "../record/leaf.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { ArchiveUnproven } from "./errors.ts";
import { type Unpacked, unpackFile } from "./pack.ts";
import { workPath } from "./probe-files.ts";
import { isProbes } from "./subjects.ts";

/** What a file has to be. */
export interface Expected {
  key: string;
  contentHash: string;
  unpackedBytes: number;
  rows: number;
}

/** Rows of a file and a digest of their ids, counted in the file itself. */
export interface Counted {
  rows: number;
  digest: string;
}

/**
 * Read a file back through the public store, as any reader gets it, unpack it beside the lake and hold it against its
 * hash, length and lines.
 * @returns the packed bytes, and where the text lies: the caller removes it
 * @throws ArchiveUnproven, and what the store throws
 */
export async function readBack(
  publicStore: Pick<Store, "get">,
  lake: Pick<Lake, "workDir">,
  { key, contentHash, unpackedBytes, rows }: Expected,
): Promise<{ packed: Uint8Array; path: string }> {
  const want = `${rows} lines in ${unpackedBytes} bytes of ${contentHash}`;
  const object = await publicStore.get(key);
  if (!object) throw new ArchiveUnproven(key, want, "no object");
  const path = workPath(lake);
  let got: Unpacked;
  try {
    got = await unpackFile(object.bytes, path, unpackedBytes);
  } catch (error) {
    await rm(path, { force: true });
    throw new ArchiveUnproven(key, want, (error as Error).message);
  }
  const found = `${got.lines} lines in ${got.unpackedBytes} bytes of ${got.contentHash}`;
  if (found === want) return { packed: object.bytes, path };
  await rm(path, { force: true });
  throw new ArchiveUnproven(key, want, found);
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
  const { packed, path } = await readBack(publicStore, lake, want);
  const got = sha256hex(packed);
  if (got === sha256) return path;
  await rm(path, { force: true });
  throw new ArchiveUnproven(key, `packed ${sha256}`, got);
}

/** Ids of a file of probes into `archive_ids`. */
export async function loadIds(tx: Statements, path: string): Promise<void> {
  await tx.run("SET VARIABLE archive_path = $path", { path });
  await tx.run(sql("66_archive_read"));
}

/** Count a file that was read back. @throws ArchiveUnproven when a row is there twice or of another day */
export async function countFile(
  lake: Pick<Lake, "transaction">,
  subject: ArchiveSubject,
  day: string,
  path: string,
): Promise<Counted> {
  if (!isProbes(subject)) return countGrades(path);
  const counted = await lake.transaction(async (tx) => {
    await loadIds(tx, path);
    const [row] = await tx.all<Counted & { twice: number; elsewhere: number }>(sql("66_archive_digest"), { day });
    return row!;
  });
  const { rows, digest, twice, elsewhere } = counted;
  if (twice + elsewhere > 0) {
    throw new ArchiveUnproven(path, `each row of ${day} once`, `${twice} twice, ${elsewhere} of other days`);
  }
  return { rows, digest };
}

/** Positions of the leaves in order, hashed: a leaf's id is its place. */
async function countGrades(path: string): Promise<Counted> {
  const places: number[] = [];
  for await (const line of createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY })) {
    places.push((JSON.parse(line) as GradeLeaf).index);
  }
  return { rows: places.length, digest: digestOfPlaces(places) };
}

export const digestOfPlaces = (places: readonly number[]): string => sha256hex(places.join("\n"));
