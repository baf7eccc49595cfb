import { sha256hex } from "../../infra/canonical.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf, EvidenceLeaf } from "../record/leaf.ts";
import { parseJson, Unproven } from "./errors.ts";
import { MAX, packedBound } from "./limits.ts";
import { described, factsOfFrame } from "./lines.ts";
import { callKey, evidenceKey, kindOfKey, type ObjectKind } from "./objects.ts";
import type { PartFile, PartFolder } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";

/** An object as a leaf names it. */
export interface NamedObject {
  /** The leaf's. */
  index: number;
  key: string;
  sha256: string;
  bytes: number;
}

/** Bytes of what a leaf names, by length and hash. @throws MissingObject, Unproven, Oversized, SourceDown */
export async function fetchNamed(
  source: Pick<Source, "get">,
  leaf: NamedObject,
  kind: ObjectKind,
): Promise<Uint8Array> {
  const { key } = leaf;
  if (kindOfKey(key) !== kind) throw new Unproven(`leaf ${leaf.index}`, `a key of ${kind}`, JSON.stringify(key));
  if (!(leaf.bytes >= 0 && leaf.bytes <= MAX.named)) {
    throw new Unproven(`leaf ${leaf.index}`, `at most ${MAX.named} bytes`, String(leaf.bytes));
  }
  return fetchFile(source, leaf);
}

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
  refuseHuge(index, bytes, unpacked_bytes);
  return leaf as EvidenceFile;
}

/** The file that an archive leaf names; its key follows from the manifest. @throws Unproven for one nobody would hold */
export function archiveFileOf({ index, manifest, sha256, unpacked_bytes }: ArchiveLeaf): NamedFile {
  const { subject, content_hash, bytes, rows } = manifest;
  refuseHuge(index, bytes, unpacked_bytes);
  const key = archiveFileKey(subject, dayOfManifest(manifest), content_hash);
  return { key, sha256, bytes, unpacked_sha256: content_hash, unpacked_bytes, rows };
}

function refuseHuge(index: number, packed: number, unpacked: number): void {
  if (packed <= MAX.named && unpacked <= MAX.unpacked) return;
  throw new Unproven(`leaf ${index}`, `at most ${MAX.named} and ${MAX.unpacked} bytes`, `${packed}, ${unpacked}`);
}

/** Files from here on are fetched by way of a folder, if there is one. */
const LARGE_BYTES = 1024 * 1024;

/**
 * Packed bytes of a file, by length and hash.
 * @param parts where a large one waits for its rest when it is cut; what lies there and does not hold is fetched whole
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchFile(
  source: Pick<Source, "get" | "into">,
  file: Pick<NamedFile, "key" | "sha256" | "bytes">,
  parts: PartFolder | null = null,
): Promise<Uint8Array> {
  const { key } = file;
  const part = parts && file.bytes > LARGE_BYTES ? await parts.open(key) : null;
  for (let continued = (part?.at ?? 0) > 0; ; continued = false) {
    const into = (held: PartFile) => fetchInto(source, key, file.bytes, held);
    const bytes = !part ? await source.get(key, file.bytes) : (await into(part)) ? await part.bytes() : null;
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

/** Longest line that is held while it is read; ours have a few thousand bytes. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;

/**
 * Read a packed file through: length, hash and lines of what it unpacks to must be the leaf's. Bounded whatever it holds.
 * @param onLine told of every line, without its newline, and may not keep it; believe none of them before this resolves
 * @throws Unproven naming what differs
 */
export async function readFile(packed: Uint8Array, leaf: NamedFile, onLine?: (line: Buffer) => void): Promise<void> {
  const facts = await factsOfFrame(packed, leaf.unpacked_bytes, { onLine, maxLine: MAX_LINE_BYTES });
  const want = described({ size: leaf.unpacked_bytes, lines: leaf.rows, sha256: leaf.unpacked_sha256 });
  if (described(facts) !== want) throw new Unproven(leaf.key, want, described(facts));
  if ("longest" in facts && facts.longest > MAX_LINE_BYTES) {
    throw new Unproven(leaf.key, `lines of at most ${MAX_LINE_BYTES} bytes`, "a longer one");
  }
}

/** Bytes of a bought call that its buyer published, as a line of the evidence names them: unpacked hash and length. */
export interface NamedCall {
  sha256: string;
  bytes: number;
}

const SHA256 = /^[0-9a-f]{64}$/;
/** In RFC 8785 text every line of a published call has it, so that no other line has to be parsed. */
const MARK = Buffer.from('"kind":2');

/**
 * The objects under `call/` that a line of an evidence file names: of a published call its request, and its answer if
 * one came.
 */
export function callsOf(line: Buffer): NamedCall[] {
  if (!line.includes(MARK)) return [];
  const row = parseJson(line) as Record<string, unknown> | null | undefined;
  if (row?.kind !== 2) return [];
  return (["request", "response"] as const).flatMap((part): NamedCall[] => {
    const [sha256, bytes] = [row[`${part}_sha256`], row[`${part}_bytes`]];
    const named = typeof sha256 === "string" && SHA256.test(sha256) && Number.isSafeInteger(bytes);
    return named ? [{ sha256, bytes: bytes as number }] : [];
  });
}

/**
 * Packed bytes of a call, by the hash and length of what they unpack to.
 * @throws MissingObject, Unproven, Oversized, SourceDown
 */
export async function fetchCall(source: Pick<Source, "get">, call: NamedCall): Promise<Uint8Array> {
  const key = callKey(call.sha256);
  if (!(call.bytes >= 0 && call.bytes <= MAX.named)) {
    throw new Unproven(key, `at most ${MAX.named} bytes`, String(call.bytes));
  }
  const packed = await source.get(key, packedBound(call.bytes));
  if (!packed) throw new MissingObject(key);
  await refuseOtherCall(packed, call);
  return packed;
}

/** @throws Unproven unless these bytes unpack to what the line names */
export async function refuseOtherCall(packed: Uint8Array, { sha256, bytes }: NamedCall): Promise<void> {
  const facts = await factsOfFrame(packed, bytes);
  const want = `${bytes} bytes of ${sha256}`;
  const got = "not" in facts ? facts.not : `${facts.size} bytes of ${facts.sha256}`;
  if (got !== want) throw new Unproven(callKey(sha256), want, got);
}
