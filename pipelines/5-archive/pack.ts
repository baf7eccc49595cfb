import { createHash } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import { availableParallelism } from "node:os";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { CompressStream, DecompressStream } from "zstd-napi";

/** A file as it is put, and what it unpacks to. */
export interface PackedFile {
  bytes: Buffer;
  contentHash: string;
  unpackedBytes: number;
}

export interface Unpacked {
  contentHash: string;
  unpackedBytes: number;
  lines: number;
}

const STEP_BYTES = 1024 * 1024;
/** From here on the engine's own threads pack beside us; starting them costs more than a small file. */
const THREADED_BYTES = 16 * 1024 * 1024;
const LF = 0x0a;

/** Pack a text file into one zstd frame at level 3 and hash what goes in. Only packed bytes are held. */
export async function packFile(path: string, sizeHint: number): Promise<PackedFile> {
  const hash = createHash("sha256");
  const threads = sizeHint > THREADED_BYTES ? { nbWorkers: Math.min(4, availableParallelism()) } : {};
  const frame = new CompressStream({ compressionLevel: 3, ...threads });
  const packed: Buffer[] = [];
  frame.on("data", (chunk: Buffer) => packed.push(chunk));
  const ended = once(frame, "end");
  ended.catch(() => undefined);
  let unpackedBytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: STEP_BYTES }) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    unpackedBytes += chunk.length;
    if (!frame.write(chunk)) await once(frame, "drain");
  }
  frame.end();
  await ended;
  return { bytes: Buffer.concat(packed), contentHash: hash.digest("hex"), unpackedBytes };
}

/**
 * Unpack what a store gave back, into a file, counting and hashing on the way.
 * @throws Error when it is no zstd frame, or unpacks to more than `most` bytes
 */
export async function unpackFile(packed: Uint8Array, path: string, most: number): Promise<Unpacked> {
  const hash = createHash("sha256");
  let unpackedBytes = 0;
  let lines = 0;
  const meter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      unpackedBytes += chunk.length;
      if (unpackedBytes > most) {
        done(new Error(`unpacks to more than ${most} bytes`));
        return;
      }
      hash.update(chunk);
      for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, at + 1)) lines++;
      done(null, chunk);
    },
  });
  await pipeline(Readable.from(slices(packed)), new DecompressStream(), meter, createWriteStream(path));
  return { contentHash: hash.digest("hex"), unpackedBytes, lines };
}

const SLICE_BYTES = 64 * 1024;

function* slices(bytes: Uint8Array): Generator<Buffer> {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < all.length; at += SLICE_BYTES) yield all.subarray(at, at + SLICE_BYTES);
}
