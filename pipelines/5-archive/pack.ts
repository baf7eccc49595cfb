import { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate } from "node:timers/promises";
import binding from "zstd-napi/binding.js";
import { type Hashing, hashingOf, THREADED_BYTES } from "./hashing.ts";

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

const LEVEL = 3;
/**
 * Of a large file of probes, whose lines have some dozen characters each like no other: whoever looks harder for repetitions
 * finds short ones in those. A day takes half of the CPU that level 3 takes, and a sixteenth to a sixth fewer bytes.
 */
const PROBES_LEVEL = 1;

export const probesLevel = (bytes: number): number => (bytes > THREADED_BYTES ? PROBES_LEVEL : LEVEL);

/** A text on its way into one zstd frame, hashed on the way in. Only packed bytes are held. */
export class Packing {
  readonly #hashing: Hashing;
  #bytes = 0;

  /** @param sizeHint bytes that will come @param level of zstd */
  constructor(sizeHint: number, level: number = LEVEL) {
    this.#hashing = hashingOf(sizeHint, level);
  }

  /** @param text is the packing's own from now on */
  async write(text: Uint8Array): Promise<void> {
    this.#bytes += text.length;
    await this.#hashing.update(text);
  }

  async end(): Promise<PackedFile> {
    const { hex, packed } = await this.#hashing.end();
    return { bytes: Buffer.concat(packed), contentHash: hex, unpackedBytes: this.#bytes };
  }

  /** It will not be ended: something failed. */
  drop(): void {
    this.#hashing.drop();
  }
}

/**
 * Unpack what a store gave back, counting and hashing on the way.
 * @param sink takes the text: a file, say; without one the count and the hash are all that is wanted
 * @throws Error when it is no zstd frame, or unpacks to more than `most` bytes
 */
export async function unpack(packed: Uint8Array, most: number, sink?: Writable): Promise<Unpacked> {
  const hash = hashingOf(most);
  let unpackedBytes = 0;
  async function* read(): AsyncGenerator<Buffer> {
    for (const piece of pieces(packed, most)) {
      unpackedBytes += piece.length;
      if (unpackedBytes > most) throw new Error(`unpacks to more than ${most} bytes`);
      if (sink) yield piece;
      // What is hashed may go on to a thread, so a sink keeps memory of its own.
      await hash.update(sink ? Buffer.from(piece) : piece);
      await setImmediate();
    }
  }
  try {
    await pipeline(read(), sink ?? nowhere());
    const { hex, lines } = await hash.end();
    return { contentHash: hex, unpackedBytes, lines };
  } catch (error) {
    hash.drop();
    throw error;
  }
}

const nowhere = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() });

/** Some milliseconds of work between two looks at what else waits. */
const PIECE_BYTES = 1024 * 1024;

/**
 * A text that was packed, piece by piece, each in memory that holds nothing else.
 * @throws Error when it is no zstd frame or ends within one
 */
function* pieces(packed: Uint8Array, most: number): Generator<Buffer> {
  const frame = new binding.DCtx();
  const size = Math.min(PIECE_BYTES, most + 1);
  let rest = packed;
  for (;;) {
    const piece = Buffer.from(new ArrayBuffer(size));
    const [left, produced, consumed] = frame.decompressStream(piece, rest);
    rest = rest.subarray(consumed);
    if (produced > 0) yield piece.subarray(0, produced);
    // A full piece may have left more behind it although nothing is left to read.
    if (rest.length > 0 || (left !== 0 && produced === piece.length)) continue;
    if (left !== 0) throw new Error("ends within its frame");
    return;
  }
}
