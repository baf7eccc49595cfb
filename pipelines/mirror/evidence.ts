import { createHash } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { evidenceKey } from "../4-publish/objects.ts";
import type { EvidenceLeaf } from "../record/leaf.ts";
import { Unproven } from "./errors.ts";
import { MAX } from "./limits.ts";
import type { Frame } from "./segment-threads.ts";
import type { PartFile, PartFolder } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";
import { BadFrame, streamFrame } from "./unpack.ts";

/** A file of lines as a leaf names it, packed and unpacked. */
export interface NamedFile {
  key: string;
  sha256: string;
  bytes: number;
  unpacked_sha256: string;
  unpacked_bytes: number;
  rows: number;
}

/** An evidence leaf that names a file. */
export type EvidenceFile = EvidenceLeaf & NamedFile;

/** The file that a leaf names, or null for a day without one. @throws Unproven when the leaf does not go together */
export function evidenceFileOf(leaf: EvidenceLeaf): EvidenceFile | null {
  const { index, day, holds, bucket, key, sha256, bytes, unpacked_sha256, unpacked_bytes } = leaf;
  if (holds === "nothing") {
    if (key === null && leaf.rows === 0) return null;
    throw new Unproven(`leaf ${index}`, "no file and no row", `${leaf.rows} rows in ${JSON.stringify(key)}`);
  }
  const part = holds === "kin" ? "kin" : bucket;
  const named = part !== null && unpacked_sha256 !== null && sha256 !== null;
  const want = named ? evidenceKey(day, part, unpacked_sha256) : "hashes and a bucket";
  if (key !== want) throw new Unproven(`leaf ${index}`, want, JSON.stringify(key));
  if (bytes > MAX.named || unpacked_bytes > MAX.unpacked) {
    throw new Unproven(
      `leaf ${index}`,
      `at most ${MAX.named} and ${MAX.unpacked} bytes`,
      `${bytes}, ${unpacked_bytes}`,
    );
  }
  return leaf as EvidenceFile;
}

/** Files from here on are fetched by way of a folder, if there is one. */
const LARGE_BYTES = 1024 * 1024;

/**
 * Packed bytes of a file, by length and hash.
 * @param parts where a large one waits for its rest when it is cut; what lies there and does not hold is fetched whole
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchEvidence(
  source: Source,
  file: NamedFile,
  parts: PartFolder | null = null,
): Promise<Uint8Array> {
  const { key } = file;
  const part = parts && file.bytes > LARGE_BYTES ? await parts.open(key) : null;
  for (let continued = (part?.at ?? 0) > 0; ; continued = false) {
    const bytes = part ? await intoPart(source, file, part) : await source.get(key, file.bytes);
    if (!bytes) throw new MissingObject(key);
    const got = sha256hex(bytes);
    if (got === file.sha256 && bytes.length === file.bytes) {
      await part?.remove();
      return bytes;
    }
    await part?.remove();
    // Our own disk may have damaged what an earlier run left.
    if (!continued) throw new Unproven(key, `${file.sha256} of ${file.bytes} bytes`, `${got} of ${bytes.length}`);
  }
}

const intoPart = async (source: Source, { key, bytes }: NamedFile, part: PartFile): Promise<Uint8Array | null> =>
  (await fetchInto(source, key, bytes, part)) ? part.bytes() : null;

const LF = 0x0a;
/** Longest line that is held while it is read; ours have a few thousand bytes. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;

/**
 * Read packed evidence through: length, hash and lines of what it unpacks to must be the leaf's. Bounded whatever it holds.
 * @param onLine told of every line, without its newline; believe none of them before this resolves
 * @throws Unproven naming what differs
 */
export async function readEvidence(
  packed: Uint8Array,
  leaf: NamedFile,
  onLine?: (line: Buffer) => void,
): Promise<void> {
  const hash = createHash("sha256");
  let lines = 0;
  let rest: Buffer[] = [];
  let held = 0;
  let longest = 0;
  const read = (chunk: Buffer) => {
    hash.update(chunk);
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      lines++;
      if (held <= MAX_LINE_BYTES) onLine?.(Buffer.concat([...rest, chunk.subarray(from, at)]));
      rest = [];
      held = 0;
      from = at + 1;
    }
    held += chunk.length - from;
    longest = Math.max(longest, held);
    if (onLine && held <= MAX_LINE_BYTES) rest.push(Buffer.from(chunk.subarray(from)));
  };
  let frame: Frame | { got: string };
  try {
    const size = await streamFrame(packed, leaf.unpacked_bytes, read);
    frame = { size, lines, longest, sha256: hash.digest("hex") };
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    frame = { got: error.message };
  }
  refuseOtherFile(frame, leaf);
}

/** @throws Unproven unless this is what the leaf says of the file, and no line is too long */
export function refuseOtherFile(frame: Frame | { got: string }, leaf: NamedFile): void {
  const said = (size: number, lines: number, sha256: string) => `${size} bytes in ${lines} lines of ${sha256}`;
  const want = said(leaf.unpacked_bytes, leaf.rows, leaf.unpacked_sha256);
  const got = "got" in frame ? frame.got : said(frame.size, frame.lines, frame.sha256);
  if (got !== want) throw new Unproven(leaf.key, want, got);
  if ("longest" in frame && frame.longest > MAX_LINE_BYTES) {
    throw new Unproven(leaf.key, `lines of at most ${MAX_LINE_BYTES} bytes`, "a longer one");
  }
}
