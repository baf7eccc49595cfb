import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { availableParallelism } from "node:os";
import { Readable, Transform, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { CompressStream, DecompressStream } from "zstd-napi";
import { type Hashing, hashingOf, THREADED_BYTES } from "./hashing.ts";
import type { LineIds } from "./line-ids.ts";

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

const LF = 0x0a;

/** A text on its way into one zstd frame at level 3, hashed on the way in. Only packed bytes are held. */
export class Packing {
  readonly #hash: Hashing;
  readonly #frame: CompressStream;
  readonly #packed: Buffer[] = [];
  readonly #ended: Promise<unknown>;
  #bytes = 0;

  /** @param sizeHint bytes that will come */
  constructor(sizeHint: number) {
    this.#hash = hashingOf(sizeHint);
    const threads = sizeHint > THREADED_BYTES ? { nbWorkers: Math.min(4, availableParallelism()) } : {};
    this.#frame = new CompressStream({ compressionLevel: 3, ...threads });
    this.#frame.on("data", (chunk: Buffer) => this.#packed.push(chunk));
    this.#ended = once(this.#frame, "end");
    // Awaited in `end`; until then an error is not an unhandled one.
    this.#ended.catch(() => undefined);
  }

  /** @param text is the packing's own from now on @param isLent see {@link Hashing} */
  async write(text: Uint8Array, isLent?: boolean): Promise<void> {
    this.#bytes += text.length;
    const chunk = Buffer.from(text.buffer, text.byteOffset, text.length);
    // The frame has read it when this was called back, and only then may it go on to a thread.
    await new Promise<void>((done, failed) => {
      this.#frame.write(chunk, (error) => (error ? failed(error) : done()));
    });
    await this.#hash.update(text, isLent);
  }

  /** See {@link Hashing}. */
  spare(): ArrayBuffer | undefined {
    return this.#hash.spare();
  }

  async end(): Promise<PackedFile> {
    this.#frame.end();
    await this.#ended;
    const contentHash = await this.#hash.digest();
    return { bytes: Buffer.concat(this.#packed), contentHash, unpackedBytes: this.#bytes };
  }

  /** It will not be ended: something failed. */
  drop(): void {
    this.#hash.drop();
    this.#frame.destroy();
  }
}

/**
 * Unpack what a store gave back, counting and hashing on the way.
 * @param sink takes the text: a file, say; without one the count and the hash are all that is wanted
 * @param ids reads the ids that the text tells
 * @throws Error when it is no zstd frame, or unpacks to more than `most` bytes
 */
export async function unpack(
  packed: Uint8Array,
  most: number,
  { sink, ids }: { sink?: Writable; ids?: LineIds } = {},
): Promise<Unpacked> {
  const hash = hashingOf(most);
  let unpackedBytes = 0;
  let lines = 0;
  const meter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      unpackedBytes += chunk.length;
      if (unpackedBytes > most) {
        done(new Error(`unpacks to more than ${most} bytes`));
        return;
      }
      for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, at + 1)) lines++;
      ids?.read(chunk);
      if (sink) this.push(chunk);
      // What is hashed may go on to a thread, so the sink keeps its own.
      hash.update(sink ? Buffer.from(chunk) : chunk).then(() => done(), done);
    },
  });
  try {
    await pipeline(Readable.from(slices(packed)), new DecompressStream(), meter, sink ?? nowhere());
    return { contentHash: await hash.digest(), unpackedBytes, lines };
  } catch (error) {
    hash.drop();
    throw error;
  }
}

/** {@link unpack} into a file. */
export const unpackFile = (packed: Uint8Array, path: string, most: number): Promise<Unpacked> =>
  unpack(packed, most, { sink: createWriteStream(path) });

const nowhere = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() });

const SLICE_BYTES = 64 * 1024;

function* slices(bytes: Uint8Array): Generator<Buffer> {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < all.length; at += SLICE_BYTES) yield all.subarray(at, at + SLICE_BYTES);
}
