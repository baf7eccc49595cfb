import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { CappedBytes, decoderOf } from "./body.ts";
import { answerHeaders } from "./headers.ts";
import type { Limits } from "./limits.ts";

export interface Question {
  method: string;
  /** Value of Host: name and, when it is not the scheme's own, port. */
  host: string;
  /** Path and query. */
  path: string;
  headers: Map<string, string>;
  body?: Uint8Array | undefined;
}

/** How one exchange over one socket ended; `off` is ours: called off. Times are `performance.now()`. */
export interface Ending {
  end: "answered" | "transport" | "timeout" | "cut" | "too_large" | "off";
  says: string;
  /** When the request was handed to the socket; undefined when it never was. */
  sentAt?: number;
  endedAt: number;
  /** From the status line on: what came, and how much of the body, at most the cap. */
  answer?: { headersAt: number; status: number; headers: Record<string, string>; body: Uint8Array };
}

/** Interim (1xx) answers before the real one: each may be as large as the headers' cap. */
const MAX_INTERIM = 16;
/** Wire bytes to decoded bytes: one-byte chunks carry five bytes of framing each, honest ones nearly none. */
const MAX_FRAMING = 4;
const ALLOWANCE_BYTES = 65_536;

/**
 * One request and its answer over a socket that is connected, checked and, for https, secured. Node's own parser reads
 * the answer; every bound is ours. The socket is destroyed at the end, whatever the end: nothing is kept alive.
 */
export class Exchange {
  readonly #timers: NodeJS.Timeout[] = [];
  #body: CappedBytes;
  #request: ClientRequest | undefined;
  #answer: IncomingMessage | undefined;
  #sentAt: number | undefined;
  #headersAt: number | undefined;
  #interim = 0;
  #windowBytes = 0;
  #done = false;

  private constructor(
    private readonly socket: Socket,
    private readonly question: Question,
    private readonly limits: Limits,
    /** ms of the total that earlier hops used up. */
    private readonly usedMs: number,
    private readonly signal: AbortSignal,
    private readonly resolve: (ending: Ending) => void,
  ) {
    this.#body = new CappedBytes(limits.bodyBytes);
  }

  static run(socket: Socket, question: Question, limits: Limits, usedMs: number, signal: AbortSignal): Promise<Ending> {
    return new Promise((resolve) => new Exchange(socket, question, limits, usedMs, signal, resolve).#start());
  }

  readonly #off = (): void => this.#end("off", "called off");

  #start(): void {
    const { method, host, path, headers, body } = this.question;
    const { socket } = this;
    // An error listener stays on for good: a peer may reset a socket that we have already left.
    socket.on("error", () => {});
    this.signal.addEventListener("abort", this.#off, { once: true });
    if (this.signal.aborted) {
      this.#off();
      return;
    }
    const length = body ? { "content-length": String(body.length) } : {};
    this.#request = httpRequest({
      createConnection: () => socket,
      method,
      path,
      setHost: false,
      headers: { host, ...Object.fromEntries(headers), "accept-encoding": "identity", ...length },
      maxHeaderSize: this.limits.headerBytes,
    });
    // Node would drop lines past 2000 in silence; the byte cap is the bound.
    this.#request.maxHeadersCount = 0;
    this.#request.on("socket", () => this.#send());
    this.#request.on("information", () => this.#countInterim());
    this.#request.on("response", (answer) => this.#read(answer));
    this.#request.on("error", (error) => this.#fail(error));
    this.#request.end(body);
  }

  /** Node hands the request to the socket right after this event: up to here not a byte of it has left. */
  #send(): void {
    if (this.#done) return;
    if (this.socket.destroyed) {
      this.#end("transport", "the connection was closed before the request");
      return;
    }
    this.#sentAt = performance.now();
    const { headersMs, totalMs } = this.limits;
    const leftMs = Math.max(0, totalMs - this.usedMs);
    this.#after(leftMs, () => this.#end("timeout", `not done within ${totalMs} ms`));
    if (headersMs >= leftMs) return;
    this.#after(headersMs, () => {
      if (!this.#answer) this.#end("timeout", `no status line within ${headersMs} ms`);
    });
  }

  #after(ms: number, act: () => void): void {
    this.#timers.push(setTimeout(act, ms));
  }

  #countInterim(): void {
    this.#interim += 1;
    if (this.#interim > MAX_INTERIM) this.#end("too_large", `more than ${MAX_INTERIM} interim answers`);
  }

  #read(answer: IncomingMessage): void {
    if (this.#done) return;
    this.#answer = answer;
    this.#headersAt = performance.now();
    const pdf = /^application\/pdf\b/i.test(answer.headers["content-type"] ?? "");
    const cap = pdf ? this.limits.pdfBytes : this.limits.bodyBytes;
    this.#body = new CappedBytes(cap);
    answer.on("data", (chunk: Buffer) => this.#countWire(chunk.length, cap));
    answer.on("error", (error) => this.#fail(error));
    this.#watchRate();
    const decoder = decoderOf(answer, this.question.method);
    decoder?.on("error", (error) => this.#fail(error));
    const source = decoder ? answer.pipe(decoder) : answer;
    source.on("data", (chunk: Buffer) => {
      if (!this.#done && !this.#body.push(chunk)) this.#end("too_large", `body past ${cap} bytes`);
    });
    source.on("end", () => {
      if (answer.complete) this.#end("answered", "");
      else this.#end("cut", "the body ended early");
    });
  }

  #countWire(bytes: number, cap: number): void {
    this.#windowBytes += bytes;
    const most = MAX_FRAMING * cap + ALLOWANCE_BYTES;
    if (this.socket.bytesRead > most) this.#end("too_large", `more than ${most} bytes for a body of at most ${cap}`);
  }

  #watchRate(): void {
    const { windowMs, windowBytes } = this.limits;
    const timer = setInterval(() => {
      if (this.#windowBytes < windowBytes) {
        this.#end("timeout", `less than ${windowBytes} bytes of body within ${windowMs} ms`);
      }
      this.#windowBytes = 0;
    }, windowMs);
    this.#timers.push(timer);
  }

  #fail(error: Error): void {
    const code = (error as NodeJS.ErrnoException).code ?? error.message;
    if (code === "HPE_HEADER_OVERFLOW") {
      this.#end("too_large", `headers past ${this.limits.headerBytes} bytes`);
    } else if (this.#answer) {
      this.#end("cut", `the body broke off: ${code}`);
    } else if (code.startsWith("HPE_")) {
      this.#end("transport", `the answer is not HTTP: ${code}`);
    } else {
      this.#end("transport", `no answer: ${code}`);
    }
  }

  #end(end: Ending["end"], says: string): void {
    if (this.#done) return;
    this.#done = true;
    const endedAt = performance.now();
    for (const timer of this.#timers) clearTimeout(timer);
    this.signal.removeEventListener("abort", this.#off);
    this.#request?.destroy();
    this.socket.destroy();
    const sent = this.#sentAt === undefined ? {} : { sentAt: this.#sentAt };
    this.resolve({ end, says, endedAt, ...sent, ...this.#seen() });
  }

  #seen(): Pick<Ending, "answer"> {
    const answer = this.#answer;
    if (!answer) return {};
    const headers = answerHeaders(answer.rawHeaders);
    return {
      answer: { headersAt: this.#headersAt!, status: answer.statusCode!, headers, body: this.#body.bytes() },
    };
  }
}
