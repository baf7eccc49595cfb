import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { availableParallelism } from "node:os";
import { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate } from "node:timers/promises";
import { CompressStream } from "zstd-napi";
import binding from "zstd-napi/binding.js";
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
  async function* read(): AsyncGenerator<Buffer> {
    // What is hashed may go on to a thread, so a sink keeps memory of its own.
    for (const piece of pieces(packed, most, () => (sink ? undefined : hash.spare()))) {
      unpackedBytes += piece.length;
      if (unpackedBytes > most) throw new Error(`unpacks to more than ${most} bytes`);
      for (let at = piece.indexOf(LF); at >= 0; at = piece.indexOf(LF, at + 1)) lines++;
      ids?.read(piece);
      if (sink) yield piece;
      await hash.update(sink ? Buffer.from(piece) : piece, sink === undefined);
      await setImmediate();
    }
  }
  try {
    await pipeline(read(), sink ?? nowhere());
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

/** Some milliseconds of work between two looks at what else waits. */
const PIECE_BYTES = 1024 * 1024;

/**
 * A text that was packed, piece by piece, each in memory that holds nothing else.
 * @param spare memory of a piece that was read
 * @throws Error when it is no zstd frame or ends within one
 */
function* pieces(packed: Uint8Array, most: number, spare: () => ArrayBuffer | undefined): Generator<Buffer> {
  const frame = new binding.DCtx();
  const size = Math.min(PIECE_BYTES, most + 1);
  let rest = packed;
  for (;;) {
    const piece = Buffer.from(spare() ?? new ArrayBuffer(size));
    const [left, produced, consumed] = frame.decompressStream(piece, rest);
    rest = rest.subarray(consumed);
    if (produced > 0) yield piece.subarray(0, produced);
    // A full piece may have left more behind it although nothing is left to read.
    if (rest.length > 0 || (left !== 0 && produced === piece.length)) continue;
    if (left !== 0) throw new Error("ends within its frame");
    return;
  }
}
