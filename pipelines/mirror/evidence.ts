import { createHash } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { evidenceKey } from "../4-publish/objects.ts";
import type { EvidenceLeaf } from "../record/leaf.ts";
import { Unproven } from "./errors.ts";
import { MAX } from "./limits.ts";
import type { Source } from "./source.ts";
import { BadFrame, streamFrame } from "./unpack.ts";

/** An evidence leaf that names a file. */
export type EvidenceFile = EvidenceLeaf & { key: string; sha256: string; unpacked_sha256: string };

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

/** Packed bytes of an evidence file, by length and hash. @throws MissingObject, Unproven, Oversized, SourceDown */
export async function fetchEvidence(source: Pick<Source, "get">, leaf: EvidenceFile): Promise<Uint8Array> {
  const bytes = await source.get(leaf.key, leaf.bytes);
  if (!bytes) throw new MissingObject(leaf.key);
  const got = sha256hex(bytes);
  if (got === leaf.sha256 && bytes.length === leaf.bytes) return bytes;
  throw new Unproven(leaf.key, `${leaf.sha256} of ${leaf.bytes} bytes`, `${got} of ${bytes.length}`);
}

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
  leaf: EvidenceFile,
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
  const want = `${leaf.unpacked_bytes} bytes in ${leaf.rows} lines of ${leaf.unpacked_sha256}`;
  let size: number;
  try {
    size = await streamFrame(packed, leaf.unpacked_bytes, read);
  } catch (error) {
    if (error instanceof BadFrame) throw new Unproven(leaf.key, want, error.message);
    throw error;
  }
  const got = `${size} bytes in ${lines} lines of ${hash.digest("hex")}`;
  if (got !== want) throw new Unproven(leaf.key, want, got);
  if (longest > MAX_LINE_BYTES)
    throw new Unproven(leaf.key, `lines of at most ${MAX_LINE_BYTES} bytes`, "a longer one");
}
