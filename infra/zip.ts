import { type FileHandle, open } from "node:fs/promises";
import { type Readable, Transform } from "node:stream";
import { crc32, createInflateRaw } from "node:zlib";

/** What is not a ZIP that is read here, or is a damaged one. */
export class ZipUnreadable extends Error {
  override readonly name = "ZipUnreadable";
}

/** A file inside a ZIP, as its directory says. */
export interface ZipEntry {
  name: string;
  /** Bytes once unpacked. */
  size: number;
  packed: number;
  /** Where its local header stands. */
  offset: number;
  method: number;
  crc: number;
}

/** Marks and widths of the records; numbers of sections are those of PKWARE's APPNOTE 6.3. */
const END = { mark: 0x06054b50, bytes: 22 };
const END64_PLACE = { mark: 0x07064b50, bytes: 20 };
const END64 = { mark: 0x06064b50, bytes: 56 };
const ENTRY = { mark: 0x02014b50, bytes: 46 };
const LOCAL = { mark: 0x04034b50, bytes: 30 };
/** A field of 32 bits that is full stands in the extra field of ZIP64 instead (4.5.3). */
const FULL = 0xffffffff;
/** A comment at the end has 64 KiB at most. */
const MAX_TAIL = END.bytes + 0xffff + END64_PLACE.bytes;
/** The directory of an archive of a few files; a larger one is none of ours. */
const MAX_DIRECTORY = 1 << 20;

async function bytesAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset);
  if (bytesRead < length) throw new ZipUnreadable("the ZIP ends too early");
  return buffer;
}

async function recordAt(file: FileHandle, offset: number, { mark, bytes }: typeof END): Promise<Buffer> {
  const record = await bytesAt(file, offset, bytes);
  if (record.readUInt32LE(0) !== mark) throw new ZipUnreadable("a record of the ZIP is not where it should be");
  return record;
}

const safe = (value: bigint): number => {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new ZipUnreadable("a size in the ZIP is beyond what any file has");
  return Number(value);
};

/** Where the directory stands (4.3.16, and 4.3.14 for archives past 4 GB). */
async function directoryOf(file: FileHandle): Promise<{ offset: number; bytes: number }> {
  const { size } = await file.stat();
  const from = Math.max(0, size - MAX_TAIL);
  const tail = await bytesAt(file, from, size - from);
  let at = tail.length - END.bytes;
  while (at >= 0 && tail.readUInt32LE(at) !== END.mark) at--;
  if (at < 0) throw new ZipUnreadable("not a ZIP, or one that was cut off: it has no directory");
  const [bytes, offset] = [tail.readUInt32LE(at + 12), tail.readUInt32LE(at + 16)];
  const place = at - END64_PLACE.bytes;
  if (place < 0 || tail.readUInt32LE(place) !== END64_PLACE.mark) return { offset, bytes };
  const end64 = await recordAt(file, safe(tail.readBigUInt64LE(place + 8)), END64);
  return { offset: safe(end64.readBigUInt64LE(48)), bytes: safe(end64.readBigUInt64LE(40)) };
}

/** The values that did not fit, in their order (4.5.3). */
function wide(extra: Buffer, narrow: readonly number[]): number[] {
  for (let at = 0; at + 4 <= extra.length; at += 4 + extra.readUInt16LE(at + 2)) {
    if (extra.readUInt16LE(at) !== 1) continue;
    let next = at + 4;
    return narrow.map((value) => {
      if (value !== FULL) return value;
      if (next + 8 > extra.length) throw new ZipUnreadable("a size is missing in the ZIP");
      next += 8;
      return safe(extra.readBigUInt64LE(next - 8));
    });
  }
  return [...narrow];
}

/** The files of a ZIP, by its directory. @throws ZipUnreadable */
export async function zipEntries(path: string): Promise<ZipEntry[]> {
  const file = await open(path);
  try {
    const place = await directoryOf(file);
    if (place.bytes > MAX_DIRECTORY) throw new ZipUnreadable("the directory of the ZIP is too large");
    const directory = await bytesAt(file, place.offset, place.bytes);
    const entries: ZipEntry[] = [];
    for (let at = 0; at + ENTRY.bytes <= directory.length; ) {
      if (directory.readUInt32LE(at) !== ENTRY.mark) throw new ZipUnreadable("the directory of the ZIP is damaged");
      const lengths = [28, 30, 32].map((field) => directory.readUInt16LE(at + field)) as [number, number, number];
      const name = at + ENTRY.bytes;
      const extra = directory.subarray(name + lengths[0], name + lengths[0] + lengths[1]);
      const narrow = [24, 20, 42].map((field) => directory.readUInt32LE(at + field));
      const [size, packed, offset] = wide(extra, narrow) as [number, number, number];
      if (directory.readUInt16LE(at + 8) & 1) throw new ZipUnreadable("the ZIP is encrypted");
      entries.push({
        ...{ name: directory.toString("utf8", name, name + lengths[0]), size, packed, offset },
        ...{ method: directory.readUInt16LE(at + 10), crc: directory.readUInt32LE(at + 16) },
      });
      at = name + lengths[0] + lengths[1] + lengths[2];
    }
    return entries;
  } finally {
    await file.close();
  }
}

/** Passes bytes on and holds them against the directory: never more than it says, and in the end the same sum. */
function proven({ name, size, crc }: ZipEntry): Transform {
  let seen = 0;
  let sum = 0;
  const wrong = () => new ZipUnreadable(`${name} in the ZIP is damaged: it is not what the directory says`);
  return new Transform({
    transform(chunk: Buffer, _, done) {
      seen += chunk.length;
      sum = crc32(chunk, sum);
      if (seen > size) done(wrong());
      else done(null, chunk);
    },
    flush: (done) => done(seen === size && sum === crc ? null : wrong()),
  });
}

/**
 * The bytes of one entry, unpacked as they come: stored or deflated, which is all that is in use. The last chunk is not
 * the end: only when the stream ended were they the bytes that the directory names. @throws ZipUnreadable, also by the stream
 */
export async function* unzipped(path: string, entry: ZipEntry): AsyncGenerator<Buffer> {
  if (entry.method !== 0 && entry.method !== 8) throw new ZipUnreadable(`${entry.name} is packed in an unknown way`);
  const file = await open(path);
  try {
    const local = await recordAt(file, entry.offset, LOCAL);
    const start = entry.offset + LOCAL.bytes + local.readUInt16LE(26) + local.readUInt16LE(28);
    if (entry.size === 0) return;
    const packed = file.createReadStream({ start, end: start + entry.packed - 1, autoClose: false });
    const stages = entry.method === 0 ? [proven(entry)] : [createInflateRaw(), proven(entry)];
    const last = stages.reduce((from: Readable, to) => {
      from.on("error", (error) => to.destroy(error));
      return from.pipe(to);
    }, packed);
    for await (const chunk of last) yield chunk as Buffer;
  } catch (error) {
    if (/^Z_/.test((error as NodeJS.ErrnoException).code ?? "")) {
      throw new ZipUnreadable(`${entry.name} in the ZIP is damaged: ${(error as Error).message}`);
    }
    throw error;
  } finally {
    await file.close();
  }
}
