import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { CappedBytes, decoderOf } from "./body.ts";
import type { Limits } from "./limits.ts";

/** How the body of an answer may end. */
export type ReadingEnd = (end: "answered" | "timeout" | "cut" | "too_large", says: string) => void;

/** Wire bytes to decoded bytes: one-byte chunks carry five bytes of framing each, honest ones nearly none. */
const MAX_FRAMING = 4;
const ALLOWANCE_BYTES = 65_536;

/** The body of one answer as it comes in: decoded, counted, and dropped when it is too much or too slow. */
export class Reading {
  readonly #body: CappedBytes;
  readonly #rate: NodeJS.Timeout;
  /** Body bytes before decoding. */
  #wireBytes = 0;

  constructor(
    private readonly answer: IncomingMessage,
    private readonly socket: Socket,
    private readonly limits: Limits,
    private readonly end: ReadingEnd,
  ) {
    const pdf = /^application\/pdf\b/i.test(answer.headers["content-type"] ?? "");
    const cap = pdf ? limits.pdfBytes : limits.bodyBytes;
    this.#body = new CappedBytes(cap);
    this.#rate = this.#watchRate();
    answer.on("data", (chunk: Buffer) => this.#countWire(chunk.length, cap));
    answer.on("error", (error) => this.broke(error));
  }

  /** Begin. After `end` was called nothing more is kept, and the caller calls `stop`. */
  start(method: string): void {
    const { answer } = this;
    const decoder = decoderOf(answer, method);
    decoder?.on("error", (error) => {
      // Decoders do not take nothing for an empty body; we do.
      if (answer.complete && this.#wireBytes === 0) this.end("answered", "");
      else this.broke(error);
    });
    const source = decoder ? answer.pipe(decoder) : answer;
    source.on("data", (chunk: Buffer) => {
      if (!this.#body.push(chunk)) this.end("too_large", `body past ${this.#body.cap} bytes`);
    });
    source.on("end", () => {
      if (answer.complete) this.end("answered", "");
      else this.end("cut", "the body ended early");
    });
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

  stop(): void {
    clearInterval(this.#rate);
  }

  /** What came so far, decoded, at most the cap. */
  bytes(): Uint8Array {
    return this.#body.bytes();
  }

  #countWire(bytes: number, cap: number): void {
    this.#wireBytes += bytes;
    const most = MAX_FRAMING * cap + ALLOWANCE_BYTES;
    if (this.socket.bytesRead > most) this.end("too_large", `more than ${most} bytes for a body of at most ${cap}`);
  }

  #watchRate(): NodeJS.Timeout {
    const { windowMs, windowBytes } = this.limits;
    let before = 0;
    return setInterval(() => {
      if (this.#wireBytes - before < windowBytes) {
        this.end("timeout", `less than ${windowBytes} bytes of body within ${windowMs} ms`);
      }
      before = this.#wireBytes;
    }, windowMs);
  }
}
