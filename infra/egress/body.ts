import type { IncomingMessage } from "node:http";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

/** Bytes up to a cap, in one growing buffer: a million one-byte chunks cost a megabyte and not a million objects. */
export class CappedBytes {
  #buffer = Buffer.alloc(0);
  #size = 0;

  constructor(readonly cap: number) {}

  /** Keep what fits. False when it did not all fit: the body is past its cap. */
  push(chunk: Uint8Array): boolean {
    const kept = Math.min(chunk.length, this.cap - this.#size);
    if (this.#size + kept > this.#buffer.length) {
      const grown = Buffer.alloc(Math.min(this.cap, Math.max(4_096, 2 * (this.#size + kept))));
      this.#buffer.copy(grown, 0, 0, this.#size);
      this.#buffer = grown;
    }
    this.#buffer.set(chunk.subarray(0, kept), this.#size);
    this.#size += kept;
    return kept === chunk.length;
  }

  bytes(): Uint8Array {
    return new Uint8Array(this.#buffer.subarray(0, this.#size));
  }
}

const DECODERS: Record<string, () => NodeJS.ReadWriteStream> = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/**
 * The decoder of the one coding that an answer claims, though we asked for identity; null for none. Several codings at
 * once and unknown ones are not undone: the bytes stay as sent and the `content-encoding` header says what they are.
 */
export function decoderOf(answer: IncomingMessage, method: string): NodeJS.ReadWriteStream | null {
  const bodyless = method === "HEAD" || answer.statusCode === 204 || answer.statusCode === 304;
  if (bodyless || answer.headers["content-length"] === "0") return null;
  const coding = (answer.headers["content-encoding"] ?? "").trim().toLowerCase();
  return Object.hasOwn(DECODERS, coding) ? DECODERS[coding]!() : null;
}
