import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import type { Limits } from "./egress.ts";

const FIRST_BLOCK_BYTES = 4_096;
const MAX_BLOCK_BYTES = 65_536;

/**
 * Collects bytes up to a cap, in blocks: a million chunks of one byte take a megabyte and not a million objects. Blocks
 * are not copied when more bytes arrive, since most bodies that reach the cap are attacks and are discarded.
 */
export class CappedBytes {
  readonly #blocks: Buffer[] = [];
  #lastBlock = Buffer.alloc(0);
  #usedInLastBlock = 0;
  #totalBytes = 0;

  constructor(readonly cap: number) {}

  /** Stores the bytes that fit. Returns false when some did not fit, because the body is longer than its cap. */
  push(chunk: Uint8Array): boolean {
    const fittingBytes = Math.min(chunk.length, this.cap - this.#totalBytes);
    for (let start = 0; start < fittingBytes; ) {
      if (this.#usedInLastBlock === this.#lastBlock.length) this.#beginBlock();
      const end = Math.min(fittingBytes, start + this.#lastBlock.length - this.#usedInLastBlock);
      this.#lastBlock.set(chunk.subarray(start, end), this.#usedInLastBlock);
      this.#usedInLastBlock += end - start;
      this.#totalBytes += end - start;
      start = end;
    }
    return fittingBytes === chunk.length;
  }

  /**
   * Begins a block as large as all blocks so far together, but no larger than the rest of the cap. The block is not
   * zeroed: `bytes` reads only what was written.
   */
  #beginBlock(): void {
    const blockBytes = Math.min(
      MAX_BLOCK_BYTES,
      Math.max(FIRST_BLOCK_BYTES, this.#totalBytes),
      this.cap - this.#totalBytes,
    );
    this.#lastBlock = Buffer.allocUnsafeSlow(blockBytes);
    this.#blocks.push(this.#lastBlock);
    this.#usedInLastBlock = 0;
  }

  bytes(): Uint8Array {
    const joined = new Uint8Array(this.#totalBytes);
    let offset = 0;
    for (const block of this.#blocks) {
      const part = block.subarray(0, this.#totalBytes - offset);
      joined.set(part, offset);
      offset += part.length;
    }
    return joined;
  }
}

/** Makes a decoder for a body that begins with the byte `firstByte`. */
type MakeDecoder = (firstByte: number) => Transform;

/** Low half of a zlib stream's first byte (RFC 1950 section 2.2): the method is deflate. */
const ZLIB_METHOD = 8;

const DECODERS: Record<string, MakeDecoder> = {
  gzip: () => createGunzip(),
  "x-gzip": () => createGunzip(),
  // "deflate" means zlib's format (RFC 9110 section 8.4.1.2); some servers send raw deflate data instead.
  deflate: (firstByte) => ((firstByte & 0x0f) === ZLIB_METHOD ? createInflate() : createInflateRaw()),
  br: () => createBrotliDecompress(),
};

/**
 * Returns the decoder for the content-encoding of an answer, even for an encoding that the request did not accept; null
 * when the body is not decoded. An unknown coding, or several at once, is not decoded: the `content-encoding` header
 * still names it.
 */
function decoderMakerOf(answer: IncomingMessage, method: string): MakeDecoder | null {
  const hasNoBody = method === "HEAD" || answer.statusCode === 204 || answer.statusCode === 304;
  if (hasNoBody || answer.headers["content-length"] === "0") return null;
  const coding = (answer.headers["content-encoding"] ?? "").trim().toLowerCase();
  return Object.hasOwn(DECODERS, coding) ? DECODERS[coding]! : null;
}

/** Called when the body of an answer has ended. */
export type OnBodyEnd = (end: "answered" | "timeout" | "cut" | "too_large", says: string) => void;

/**
 * Factor by which bytes on the wire may exceed the body's cap. A chunk of one byte has five bytes of framing; the
 * chunks of an honest server have nearly none.
 */
const MAX_FRAMING_FACTOR = 4;
/**
 * Allowance, bytes, in two limits: the socket may receive MAX_FRAMING_FACTOR times the cap and this, and an encoded
 * body may have the cap and this before decoding.
 */
const FRAMING_ALLOWANCE_BYTES = 65_536;

/**
 * Reads the body of one answer: decodes it, counts its bytes, and ends the exchange when it is too long or too slow.
 */
export class BodyReader {
  readonly #body: CappedBytes;
  readonly #rateTimer: NodeJS.Timeout;
  readonly #makeDecoder: MakeDecoder | null;
  #decoder: Transform | null = null;
  /** Number of body bytes received so far, before decoding. */
  #wireBytes = 0;
  #hasWireEnded = false;
  #isDecoded = false;
  #isStopped = false;

  /** Begins to read at once. After `end` was called, the caller must call `stop`. */
  constructor(
    private readonly answer: IncomingMessage,
    private readonly socket: Socket,
    private readonly limits: Limits,
    method: string,
    private readonly end: OnBodyEnd,
  ) {
    const isPdf = /^application\/pdf\b/i.test(answer.headers["content-type"] ?? "");
    this.#body = new CappedBytes(isPdf ? limits.pdfBytes : limits.bodyBytes);
    this.#makeDecoder = decoderMakerOf(answer, method);
    this.#rateTimer = this.#watchRate();
    answer.on("data", (chunk: Buffer) => this.#onChunk(chunk));
    answer.on("end", () => {
      this.#hasWireEnded = true;
      if (this.#decoder) this.#decoder.end();
      else this.#isDecoded = true;
      this.#finish();
    });
    answer.on("error", (error) => this.endBroken(error));
  }

  /** True when the whole message was received. Errors of the connection after that do not affect the answer. */
  get isComplete(): boolean {
    return this.answer.complete;
  }

  /** Ends the exchange with `cut` after an error of the connection or the decoder. */
  endBroken(error: Error): void {
    // Bytes that arrived just before the error are still in the stream. Reading them passes them to the "data"
    // listener.
    while (this.answer.read() !== null);
    this.end("cut", `the body broke off: ${(error as NodeJS.ErrnoException).code ?? error.message}`);
  }

  /**
   * Stops reading; called however the exchange ended. The decoder is destroyed, since it would otherwise go on to
   * decode the bytes that it has received.
   */
  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#rateTimer);
    this.#decoder?.destroy();
  }

  /** Returns the decoded body so far, at most the cap. */
  bytes(): Uint8Array {
    return this.#body.bytes();
  }

  #onChunk(chunk: Buffer): void {
    if (this.#isStopped || !this.#countWire(chunk.length)) return;
    if (!this.#makeDecoder) this.#storeDecoded(chunk);
    // Bytes after the end of a coded body are ignored, as stock clients ignore them.
    else if (!this.#isDecoded) this.#decode(this.#makeDecoder, chunk);
  }

  #decode(makeDecoder: MakeDecoder, chunk: Buffer): void {
    this.#decoder ??= this.#startDecoder(makeDecoder, chunk[0]!);
    if (this.#decoder.write(chunk)) return;
    this.answer.pause();
    this.#decoder.once("drain", () => this.answer.resume());
  }

  #startDecoder(makeDecoder: MakeDecoder, firstByte: number): Transform {
    const decoder = makeDecoder(firstByte);
    decoder.on("error", (error) => this.endBroken(error));
    // One chunk (16 KiB) is decoded at a time. The next is decoded only after this one was counted.
    decoder.on("data", (chunk: Buffer) => this.#storeDecoded(chunk));
    decoder.on("end", () => {
      this.#isDecoded = true;
      this.#finish();
    });
    return decoder;
  }

  #storeDecoded(chunk: Buffer): void {
    if (!this.#body.push(chunk)) this.end("too_large", `body past ${this.#body.cap} bytes`);
  }

  #finish(): void {
    if (!this.#hasWireEnded || !this.#isDecoded) return;
    if (this.answer.complete) this.end("answered", "");
    else this.end("cut", "the body ended early");
  }

  /**
   * Counts bytes on the wire; returns false when there are too many. An honest encoded body is hardly longer than its
   * decoded form. An endless body of empty blocks decodes to nothing, so the cap on decoded bytes alone would not stop
   * it.
   */
  #countWire(byteCount: number): boolean {
    this.#wireBytes += byteCount;
    const { cap } = this.#body;
    const maxWireBytes = MAX_FRAMING_FACTOR * cap + FRAMING_ALLOWANCE_BYTES;
    const maxCodedBytes = cap + FRAMING_ALLOWANCE_BYTES;
    const exceededLimit =
      this.socket.bytesRead > maxWireBytes
        ? maxWireBytes
        : this.#makeDecoder && this.#wireBytes > maxCodedBytes
          ? maxCodedBytes
          : undefined;
    if (exceededLimit === undefined) return true;
    this.end("too_large", `more than ${exceededLimit} bytes for a body of at most ${cap}`);
    return false;
  }

  #watchRate(): NodeJS.Timeout {
    const { windowMs, windowBytes } = this.limits;
    let bytesBefore = 0;
    return setInterval(() => {
      // Once the whole body was received, only our own decoder is still working.
      if (!this.#hasWireEnded && this.#wireBytes - bytesBefore < windowBytes) {
        this.end("timeout", `less than ${windowBytes} bytes of body within ${windowMs} ms`);
      }
      bytesBefore = this.#wireBytes;
    }, windowMs);
  }
}
