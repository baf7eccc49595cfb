import { sha256hex } from "../../infra/canonical.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf, EvidenceLeaf } from "../record/leaf.ts";
import { parseJson, Unproven } from "./errors.ts";
import { MAX_BYTES, packedBound } from "./limits.ts";
import { describeText, scanFrame } from "./lines.ts";
import { callKey, evidenceKey, kindOfKey, type ObjectKind } from "./objects.ts";
import type { PartFile, PartFolder } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";

/** A public object that a leaf (an entry of the log) names by key, hash and length. */
export interface NamedObject {
  /** Position of the leaf in the log. */
  index: number;
  key: string;
  sha256: string;
  bytes: number;
}

/**
 * Fetches an object that a leaf names and checks its length and hash.
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchNamed(
  source: Pick<Source, "get">,
  leaf: NamedObject,
  kind: ObjectKind,
): Promise<Uint8Array> {
  const { key } = leaf;
  checkKind(leaf.index, key, kind);
  if (!(leaf.bytes >= 0 && leaf.bytes <= MAX_BYTES.named)) {
    throw new Unproven(`leaf ${leaf.index}`, `at most ${MAX_BYTES.named} bytes`, String(leaf.bytes));
  }
  return fetchFile(source, leaf);
}

function checkKind(index: number, key: string, kind: ObjectKind): void {
  if (kindOfKey(key) !== kind) throw new Unproven(`leaf ${index}`, `a key of ${kind}`, JSON.stringify(key));
}

/** A zstd-packed file of lines that a leaf names: hash and length of the packed and of the unpacked bytes. */
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

/**
 * The file that an evidence leaf names, or null for a day without a file.
 * @throws Unproven when the leaf's members contradict each other, or the file is too large
 */
export function evidenceFileOf(leaf: EvidenceLeaf): EvidenceFile | null {
  const { index, day, holds, bucket, key, sha256, bytes, unpacked_sha256, unpacked_bytes } = leaf;
  if (holds === "nothing") {
    if (key === null && leaf.rows === 0) return null;
    throw new Unproven(`leaf ${index}`, "no file and no row", `${leaf.rows} rows in ${JSON.stringify(key)}`);
  }
  const part = holds === "kin" ? "kin" : bucket;
  const isNamed = part !== null && unpacked_sha256 !== null && sha256 !== null;
  const expectedKey = isNamed ? evidenceKey(day, part, unpacked_sha256) : "hashes and a bucket";
  if (key !== expectedKey) throw new Unproven(`leaf ${index}`, expectedKey, JSON.stringify(key));
  checkKind(index, key, "evidence");
  checkFileSizes(index, bytes, unpacked_bytes);
  return leaf as EvidenceFile;
}

/**
 * The file that an archive leaf names; its key is computed from the manifest.
 * @throws Unproven when the file is too large, or the computed key is not that of an archive file
 */
export function archiveFileOf({ index, manifest, sha256, unpacked_bytes }: ArchiveLeaf): NamedFile {
  const { subject, content_hash, bytes, rows } = manifest;
  checkFileSizes(index, bytes, unpacked_bytes);
  const key = archiveFileKey(subject, dayOfManifest(manifest), content_hash);
  checkKind(index, key, "archiveFile");
  return { key, sha256, bytes, unpacked_sha256: content_hash, unpacked_bytes, rows };
}

function checkFileSizes(index: number, packedBytes: number, unpackedBytes: number): void {
  if (packedBytes <= MAX_BYTES.named && unpackedBytes <= MAX_BYTES.unpacked) return;
  throw new Unproven(
    `leaf ${index}`,
    `at most ${MAX_BYTES.named} and ${MAX_BYTES.unpacked} bytes`,
    `${packedBytes}, ${unpackedBytes}`,
  );
}

/** Files above this size are fetched into a folder, if one is given, so that a cut transfer can be continued. */
const LARGE_BYTES = 1024 * 1024;

/**
 * Fetches the packed bytes of a file and checks their length and hash.
 * @param parts folder that keeps the received part of a large file, so that a later call continues the transfer. If
 * a continued file is wrong, it is fetched once more from its first byte
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchFile(
  source: Pick<Source, "get" | "into">,
  file: Pick<NamedFile, "key" | "sha256" | "bytes">,
  parts: PartFolder | null = null,
): Promise<Uint8Array> {
  const { key } = file;
  const partFile = parts && file.bytes > LARGE_BYTES ? await parts.open(key) : null;
  for (let isContinued = (partFile?.receivedBytes ?? 0) > 0; ; isContinued = false) {
    const fetchIntoPart = (part: PartFile) => fetchInto(source, key, file.bytes, part);
    const bytes = !partFile
      ? await source.get(key, file.bytes)
      : (await fetchIntoPart(partFile))
        ? await partFile.bytes()
        : null;
    if (!bytes) throw new MissingObject(key);
    const got = sha256hex(bytes);
    if (got === file.sha256 && bytes.length === file.bytes) {
      await partFile?.remove();
      return bytes;
    }
    await partFile?.remove();
    // Our own disk may have damaged the part that an earlier call received, so the whole file is fetched once more.
    if (!isContinued) throw new Unproven(key, `${file.sha256} of ${file.bytes} bytes`, `${got} of ${bytes.length}`);
  }
}

/** Longest line that is kept in memory while a file is read; our own lines have a few thousand bytes. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;

/**
 * Unpacks a file as a stream, in bounded memory, and checks length, hash and number of lines against the leaf.
 * @param onLine called with every line, without its newline; the buffer is reused. The lines are proven only when the
 * returned promise resolves
 * @throws Unproven, which names what differs
 */
export async function readFile(packed: Uint8Array, leaf: NamedFile, onLine?: (line: Buffer) => void): Promise<void> {
  const facts = await scanFrame(packed, leaf.unpacked_bytes, { onLine, maxLine: MAX_LINE_BYTES });
  const expected = describeText({ size: leaf.unpacked_bytes, lines: leaf.rows, sha256: leaf.unpacked_sha256 });
  if (describeText(facts) !== expected) throw new Unproven(leaf.key, expected, describeText(facts));
  if ("longest" in facts && facts.longest > MAX_LINE_BYTES) {
    throw new Unproven(leaf.key, `lines of at most ${MAX_LINE_BYTES} bytes`, "a longer one");
  }
}

/**
 * Unpacks a file twice: first to check it against the leaf, then to pass its lines to `onLine`. So no line has to be
 * kept until it is proven, and a file of some kilobytes that unpacks to gigabytes costs time but no memory.
 * @param onLine called with every line, without its newline; the buffer is reused
 * @throws Unproven, which names what differs
 */
export async function readProvenLines(
  packed: Uint8Array,
  leaf: NamedFile,
  onLine: (line: Buffer) => void,
): Promise<void> {
  await readFile(packed, leaf);
  await readFile(packed, leaf, onLine);
}

/**
 * Request or answer of a call that a buyer published: hash and length of its unpacked bytes, as an evidence line
 * names them.
 */
export interface NamedCall {
  sha256: string;
  bytes: number;
}

const SHA256 = /^[0-9a-f]{64}$/;
/** Every line of a published call, in RFC 8785 form, contains these bytes. Lines without them are not parsed. */
const PUBLISHED_CALL_MARK = Buffer.from('"kind":2');

/**
 * The objects under `call/` that a line of an evidence file names: for a published call its request, and its answer
 * if the line names one; for any other line none.
 */
export function publishedCallsOf(line: Buffer): NamedCall[] {
  if (!line.includes(PUBLISHED_CALL_MARK)) return [];
  const row = parseJson(line) as Record<string, unknown> | null | undefined;
  if (row?.kind !== 2) return [];
  return (["request", "response"] as const).flatMap((part): NamedCall[] => {
    const [sha256, bytes] = [row[`${part}_sha256`], row[`${part}_bytes`]];
    const isNamed = typeof sha256 === "string" && SHA256.test(sha256) && Number.isSafeInteger(bytes);
    return isNamed ? [{ sha256, bytes: bytes as number }] : [];
  });
}

/**
 * Fetches the packed request or answer of a call and checks hash and length of the unpacked bytes.
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchCall(source: Pick<Source, "get">, call: NamedCall): Promise<Uint8Array> {
  const key = callKey(call.sha256);
  if (!(call.bytes >= 0 && call.bytes <= MAX_BYTES.named)) {
    throw new Unproven(key, `at most ${MAX_BYTES.named} bytes`, String(call.bytes));
  }
  const packed = await source.get(key, packedBound(call.bytes));
  if (!packed) throw new MissingObject(key);
  await checkCallBytes(packed, call);
  return packed;
}

/** Checks that packed bytes unpack to the hash and length that an evidence line names. @throws Unproven */
export async function checkCallBytes(packed: Uint8Array, { sha256, bytes }: NamedCall): Promise<void> {
  const facts = await scanFrame(packed, bytes);
  const expected = `${bytes} bytes of ${sha256}`;
  const got = "not" in facts ? facts.not : `${facts.size} bytes of ${facts.sha256}`;
  if (got !== expected) throw new Unproven(callKey(sha256), expected, got);
}
