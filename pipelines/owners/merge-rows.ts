import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import { ArchiveUnproven } from "../5-archive/errors.ts";
import { IdDigest, xorOf } from "../5-archive/id-digest.ts";
import { type Unpacked, unpackFile } from "../5-archive/pack.ts";
import { LineFiles } from "../5-archive/pack-lines.ts";
import type { MadeFile } from "../5-archive/subjects.ts";
import { workPath } from "../5-archive/work-files.ts";
import type { PartDay, PartFile } from "./archive-parts.ts";

/** Lines of one capability, as a partition's files have them: their bytes, a character each. */
interface CapLines {
  cap: string;
  lines: string[];
}

/**
 * Files of one subject and day out of what its partitions have: every line as it was put, in the order of (capability,
 * record), as if one lake had held all of them. A capability is in one partition, and each partition's lines are in order.
 * @param lake nothing of it but its folder for files: what was fetched lies there unpacked meanwhile
 * @throws ArchiveUnproven when a partition's file is not what it says, or not every row of it came out again
 */
export async function mergeRows(
  lake: Pick<Lake, "workDir">,
  store: Pick<Store, "get">,
  days: readonly (readonly [number, PartDay])[],
  rowsAFile?: number,
): Promise<MadeFile[]> {
  const rows = days.reduce((sum, [, day]) => sum + day.rows, 0);
  const into = new LineFiles(lake, rows, rowsAFile);
  const digest = new IdDigest();
  const texts: string[] = [];
  try {
    const partitions: AsyncGenerator<CapLines>[] = [];
    for (const [, { files }] of days) {
      const own: string[] = [];
      for (const file of files) own.push(await fetched(lake, store, file, texts));
      partitions.push(capsOf(own));
    }
    for await (const { cap, lines } of merged(partitions)) {
      for (const line of lines) {
        const id = told(line, ID);
        digest.add(id);
        into.push(cap, id, line);
        if (into.isDue) await into.flush();
      }
    }
    const made = await into.end();
    const want = `${rows} rows of ids ${xorOf(days.map(([, day]) => day.digest))}`;
    const got = `${made.reduce((sum, file) => sum + file.rows, 0)} rows of ids ${digest.value()}`;
    if (want === got) return made;
    throw new ArchiveUnproven(days.flatMap(([, { files }]) => files.map(({ key }) => key)).join(", "), want, got);
  } catch (error) {
    await into.drop();
    throw error;
  } finally {
    for (const path of texts) await rm(path, { force: true });
  }
}

/** Fetched, unpacked and held against its hash and length before a line of it is believed. @param texts takes its path */
async function fetched(
  lake: Pick<Lake, "workDir">,
  store: Pick<Store, "get">,
  file: PartFile,
  texts: string[],
): Promise<string> {
  const { key, rows, sha256, content_hash, unpacked_bytes } = file;
  const object = await store.get(key);
  const packed = object === null ? "no object" : sha256hex(object.bytes);
  if (object === null || packed !== sha256) throw new ArchiveUnproven(key, sha256, packed);
  const path = workPath(lake);
  texts.push(path);
  const got: Unpacked = await unpackFile(object.bytes, path, unpacked_bytes);
  const [want, found] = [
    `${rows} lines in ${unpacked_bytes} bytes of ${content_hash}`,
    `${got.lines} lines in ${got.unpackedBytes} bytes of ${got.contentHash}`,
  ];
  if (found !== want) throw new ArchiveUnproven(key, want, found);
  return path;
}

/** The least capability of all partitions, again and again. At most 64 of them, so a look at each is cheap. */
async function* merged(partitions: readonly AsyncGenerator<CapLines>[]): AsyncGenerator<CapLines> {
  const heads = await Promise.all(partitions.map(async (caps) => (await caps.next()).value as CapLines | undefined));
  try {
    for (;;) {
      let least = -1;
      for (const [n, head] of heads.entries()) if (head && (least < 0 || head.cap < heads[least]!.cap)) least = n;
      if (least < 0) return;
      yield heads[least]!;
      heads[least] = (await partitions[least]!.next()).value as CapLines | undefined;
    }
  } finally {
    for (const caps of partitions) await caps.return(undefined);
  }
}

/** Read at once of each partition's text. */
const STEP_BYTES = 256 * 1024;

/** Lines of one partition's files after each other, by capability. */
async function* capsOf(paths: readonly string[]): AsyncGenerator<CapLines> {
  let held = null as CapLines | null;
  for (const path of paths) {
    let rest = "";
    for await (const chunk of createReadStream(path, { encoding: "latin1", highWaterMark: STEP_BYTES })) {
      const lines = `${rest}${chunk as string}`.split("\n");
      rest = lines.pop()!;
      for (const text of lines) {
        const cap = told(text, CAP);
        if (held?.cap !== cap) {
          if (held) yield held;
          held = { cap, lines: [] };
        }
        held.lines.push(`${text}\n`);
      }
    }
  }
  if (held) yield held;
}

/** A quote within a string of JSON is escaped, so these stand where the member is and nowhere else. */
const CAP = ',"capability_id":"';
const ID = ',"record_id":"';

function told(line: string, member: string): string {
  const at = line.indexOf(member) + member.length;
  return line.slice(at, line.indexOf('"', at));
}
