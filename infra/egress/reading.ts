import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import type { Limits } from "./egress.ts";

const FIRST_BLOCK = 4_096;
const MAX_BLOCK = 65_536;

/**
 * Bytes up to a cap, in blocks: a million one-byte chunks cost a megabyte and not a million objects. What is there is not
 * copied when more comes: most bodies that are bombs or floods are as long as their cap, and are thrown away.
 */
export class CappedBytes {
  readonly #blocks: Buffer[] = [];
  #last = Buffer.alloc(0);
  #used = 0;
  #size = 0;

  constructor(readonly cap: number) {}

  /** Keep what fits. False when it did not all fit: the body is past its cap. */
  push(chunk: Uint8Array): boolean {
    const kept = Math.min(chunk.length, this.cap - this.#size);
    for (let from = 0; from < kept; ) {
      if (this.#used === this.#last.length) this.#begin();
      const end = Math.min(kept, from + this.#last.length - this.#used);
      this.#last.set(chunk.subarray(from, end), this.#used);
      this.#used += end - from;
      this.#size += end - from;
      from = end;
    }
    return kept === chunk.length;
  }

  /** As much again as there is, no more than can still come. Not zeroed: what was not written is never read. */
  #begin(): void {
    const most = Math.min(MAX_BLOCK, Math.max(FIRST_BLOCK, this.#size), this.cap - this.#size);
    this.#last = Buffer.allocUnsafeSlow(most);
    this.#blocks.push(this.#last);
    this.#used = 0;
  }

  bytes(): Uint8Array {
    const all = new Uint8Array(this.#size);
    let at = 0;
    for (const block of this.#blocks) {
      const part = block.subarray(0, this.#size - at);
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

/** Makes a decoder, once the first byte of the body is there. */
type MakeDecoder = (first: number) => Transform;

/** Low half of a zlib stream's first byte (RFC 1950 section 2.2): the method is deflate. */
const ZLIB_METHOD = 8;

const DECODERS: Record<string, MakeDecoder> = {
  gzip: () => createGunzip(),
  "x-gzip": () => createGunzip(),
  // "deflate" is zlib's format (RFC 9110 section 8.4.1.2), and there are servers that send the bare one.
  deflate: (first) => ((first & 0x0f) === ZLIB_METHOD ? createInflate() : createInflateRaw()),
  br: () => createBrotliDecompress(),
};

/**
 * The decoder of the one coding that an answer claims, whether or not we asked for it; null for none. Several codings
 * at once and unknown ones are not undone: the bytes stay as sent and the `content-encoding` header says what they are.
 */
function decoderOf(answer: IncomingMessage, method: string): MakeDecoder | null {
  const bodyless = method === "HEAD" || answer.statusCode === 204 || answer.statusCode === 304;
  if (bodyless || answer.headers["content-length"] === "0") return null;
  const coding = (answer.headers["content-encoding"] ?? "").trim().toLowerCase();
  return Object.hasOwn(DECODERS, coding) ? DECODERS[coding]! : null;
}

/** How the body of an answer may end. */
export type ReadingEnd = (end: "answered" | "timeout" | "cut" | "too_large", says: string) => void;

/** Wire bytes to decoded bytes: one-byte chunks carry five bytes of framing each, honest ones nearly none. */
const MAX_FRAMING = 4;
const ALLOWANCE_BYTES = 65_536;

/** The body of one answer as it comes in: decoded, counted, and dropped when it is too much or too slow. */
export class Reading {
  readonly #body: CappedBytes;
  readonly #rate: NodeJS.Timeout;
  readonly #make: MakeDecoder | null;
  #decoder: Transform | null = null;
  /** Body bytes before decoding. */
  #wireBytes = 0;
  #wireEnded = false;
  #decoded = false;
  #stopped = false;

  /** Begins at once. After `end` was called nothing more is kept, and the caller calls `stop`. */
  constructor(
    private readonly answer: IncomingMessage,
    private readonly socket: Socket,
    private readonly limits: Limits,
    method: string,
    private readonly end: ReadingEnd,
  ) {
    const pdf = /^application\/pdf\b/i.test(answer.headers["content-type"] ?? "");
    this.#body = new CappedBytes(pdf ? limits.pdfBytes : limits.bodyBytes);
    this.#make = decoderOf(answer, method);
    this.#rate = this.#watchRate();
    answer.on("data", (chunk: Buffer) => this.#take(chunk));
    answer.on("end", () => {
      this.#wireEnded = true;
      if (this.#decoder) this.#decoder.end();
      else this.#decoded = true;
      this.#finish();
    });
    answer.on("error", (error) => this.broke(error));
  }

  /** Is the message whole? What the peer writes or breaks afterwards is no part of it. */
  get whole(): boolean {
    return this.answer.complete;
  }

  broke(error: Error): void {
    // What came in one packet with the fault is still in the stream; reading hands it to our listener.
    while (this.answer.read() !== null);
    this.end("cut", `the body broke off: ${(error as NodeJS.ErrnoException).code ?? error.message}`);
  }

  /** Whatever the end was, nothing is decoded after it: a decoder left alone works off all that it was given. */
  stop(): void {
    this.#stopped = true;
    clearInterval(this.#rate);
    this.#decoder?.destroy();
  }

  /** What came so far, decoded, at most the cap. */
  bytes(): Uint8Array {
    return this.#body.bytes();
  }

  #take(chunk: Buffer): void {
    if (this.#stopped || !this.#countWire(chunk.length)) return;
    if (!this.#make) this.#keep(chunk);
    // What follows the end of a coded body is no part of it, as stock clients have it.
    else if (!this.#decoded) this.#decode(this.#make, chunk);
  }

  #decode(make: MakeDecoder, chunk: Buffer): void {
    this.#decoder ??= this.#begin(make, chunk[0]!);
    if (this.#decoder.write(chunk)) return;
    this.answer.pause();
    this.#decoder.once("drain", () => this.answer.resume());
  }

  #begin(make: MakeDecoder, first: number): Transform {
    const decoder = make(first);
    decoder.on("error", (error) => this.broke(error));
    // One chunk (16 KiB) is decoded at a time, and the next only after this one was counted.
    decoder.on("data", (chunk: Buffer) => this.#keep(chunk));
    decoder.on("end", () => {
      this.#decoded = true;
      this.#finish();
    });
    return decoder;
  }

  #keep(chunk: Buffer): void {
    if (!this.#body.push(chunk)) this.end("too_large", `body past ${this.#body.cap} bytes`);
  }

  #finish(): void {
    if (!this.#wireEnded || !this.#decoded) return;
    if (this.answer.complete) this.end("answered", "");
    else this.end("cut", "the body ended early");
  }

  /**
   * False when it is too much. A coded body is never honestly longer than what it decodes to, and one of empty blocks
   * decodes to nothing for ever: what it may cost us is bounded by what it sends.
   */
  #countWire(bytes: number): boolean {
    this.#wireBytes += bytes;
    const { cap } = this.#body;
    const framed = MAX_FRAMING * cap + ALLOWANCE_BYTES;
    const coded = cap + ALLOWANCE_BYTES;
    const over = this.socket.bytesRead > framed ? framed : this.#make && this.#wireBytes > coded ? coded : undefined;
    if (over === undefined) return true;
    this.end("too_large", `more than ${over} bytes for a body of at most ${cap}`);
    return false;
  }

  #watchRate(): NodeJS.Timeout {
    const { windowMs, windowBytes } = this.limits;
    let before = 0;
    return setInterval(() => {
      // Once all of it is here, what it waits for is our own decoder.
      if (!this.#wireEnded && this.#wireBytes - before < windowBytes) {
        this.end("timeout", `less than ${windowBytes} bytes of body within ${windowMs} ms`);
      }
      before = this.#wireBytes;
    }, windowMs);
  }
}
