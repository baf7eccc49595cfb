import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "./egress.ts";
import { answerHeaders, headerBytesOf } from "./headers.ts";
import { BodyReader } from "./reading.ts";

export interface RequestParts {
  method: string;
  /** Value of the header Host: the name, and the port unless it is the scheme's default. */
  host: string;
  /** Path and query. */
  path: string;
  /** All headers but Host and Content-Length, in the order in which they are sent. */
  headers: Map<string, string>;
  body?: Uint8Array | undefined;
}

/**
 * The end of one exchange over one socket. `off`: our caller aborted the exchange. Times are of `performance.now()`.
 */
export interface ExchangeEnd {
  end: "answered" | "transport" | "timeout" | "cut" | "too_large" | "off";
  /** Explanation of the end, for people; empty for `answered`. */
  says: string;
  /** When the request was handed to the socket; undefined if it was not. */
  sentAt?: number;
  endedAt: number;
  /** Present once the status line has arrived. `body` is the part that has arrived, at most the cap. */
  answer?: { headersAt: number; status: number; headers: Record<string, string>; body: Uint8Array };
}

/** Methods whose requests have a Content-Length even without a body (RFC 9110 section 8.6). */
const METHODS_WITH_LENGTH = new Set(["POST", "PUT", "PATCH"]);

/** Largest number of interim (1xx) answers before the final one; each may be as large as the headers' cap. */
const MAX_INTERIM_ANSWERS = 16;

/**
 * Sends one request over a socket that is connected, checked and, for https, secured, and reads the answer with
 * Node's HTTP parser. This class enforces the limits. It destroys the socket at every end: no connection is kept
 * alive.
 */
export class Exchange {
  readonly #timers: NodeJS.Timeout[] = [];
  #request: ClientRequest | undefined;
  #answer: { message: IncomingMessage; headersAt: number; bodyReader: BodyReader } | undefined;
  #sentAt: number | undefined;
  #interimAnswers = 0;
  #hasEnded = false;

  private constructor(
    private readonly socket: Socket,
    private readonly requestParts: RequestParts,
    private readonly limits: Limits,
    /** ms of the total time that the wait for a place and earlier hops used up. */
    private readonly usedMs: number,
    private readonly signal: AbortSignal,
    private readonly resolve: (ending: ExchangeEnd) => void,
  ) {}

  /** Runs one exchange and resolves with its end; never rejects. @param usedMs part of `totalMs` that has passed, ms */
  static run(
    socket: Socket,
    requestParts: RequestParts,
    limits: Limits,
    usedMs: number,
    signal: AbortSignal,
  ): Promise<ExchangeEnd> {
    return new Promise((resolve) => new Exchange(socket, requestParts, limits, usedMs, signal, resolve).#start());
  }

  readonly #callOff = (): void => this.#end("off", "called off");

  #start(): void {
    const { method, host, path, headers, body } = this.requestParts;
    const { socket } = this;
    // An error listener is never removed, since a peer may reset a socket after the end of the exchange.
    socket.on("error", () => {});
    this.signal.addEventListener("abort", this.#callOff, { once: true });
    if (this.signal.aborted) {
      this.#callOff();
      return;
    }
    const lengthHeader = body || METHODS_WITH_LENGTH.has(method) ? { "content-length": String(body?.length ?? 0) } : {};
    const request = httpRequest({
      createConnection: () => socket,
      method,
      path,
      setHost: false,
      headers: { host, ...Object.fromEntries(headers), ...lengthHeader },
      maxHeaderSize: this.limits.headerBytes,
    });
    this.#request = request;
    // Node would silently drop lines beyond 2000, so its limit is removed. The byte cap bounds the headers.
    request.maxHeadersCount = 0;
    request.on("socket", () => this.#onSending());
    request.on("information", () => this.#countInterim());
    request.on("upgrade", () => this.#end("transport", "no answer: the other side changed the protocol"));
    request.on("response", (message) => this.#readAnswer(message));
    request.on("error", (error) => this.#fail(error));
    request.end(body);
  }

  /**
   * Notes the time of sending and starts the deadlines. Called at Node's event `socket`, right after which Node hands
   * the request to the socket, so no byte has been sent before.
   */
  #onSending(): void {
    if (this.#hasEnded) return;
    if (this.socket.destroyed) {
      this.#end("transport", "the connection was closed before the request");
      return;
    }
    this.#sentAt = performance.now();
    const { headersMs, totalMs } = this.limits;
    const leftMs = Math.max(0, totalMs - this.usedMs);
    this.#runAfter(leftMs, () => this.#end("timeout", `not done within ${totalMs} ms`));
    // The deadline of the status line is set only if it is earlier. At equal times the total one is to be reported.
    if (headersMs >= leftMs) return;
    this.#runAfter(headersMs, () => {
      if (!this.#answer) this.#end("timeout", `no status line within ${headersMs} ms`);
    });
  }

  /**
   * Runs `work` after `ms`, unless the exchange ends before. A timer counts from the start of the event loop's turn,
   * which on a busy machine is some milliseconds ago, so one that fires early waits for the rest.
   */
  #runAfter(ms: number, work: () => void): void {
    const dueAt = performance.now() + ms;
    const runIfDue = (): void => {
      const leftMs = dueAt - performance.now();
      if (leftMs > 0) this.#timers.push(setTimeout(runIfDue, leftMs));
      else work();
    };
    this.#timers.push(setTimeout(runIfDue, ms));
  }

  #countInterim(): void {
    this.#interimAnswers += 1;
    if (this.#interimAnswers > MAX_INTERIM_ANSWERS)
      this.#end("too_large", `more than ${MAX_INTERIM_ANSWERS} interim answers`);
  }

  #readAnswer(message: IncomingMessage): void {
    if (this.#hasEnded) return;
    if (headerBytesOf(message.rawHeaders) > this.limits.headerBytes) {
      this.#endForLargeHeaders();
      return;
    }
    const { method } = this.requestParts;
    const bodyReader = new BodyReader(message, this.socket, this.limits, method, (end, says) => this.#end(end, says));
    this.#answer = { message, headersAt: performance.now(), bodyReader };
  }

  #fail(error: Error): void {
    const code = (error as NodeJS.ErrnoException).code ?? error.message;
    if (this.#answer?.bodyReader.isComplete) return;
    if (code === "HPE_HEADER_OVERFLOW") this.#endForLargeHeaders();
    else if (this.#answer) this.#answer.bodyReader.endBroken(error);
    else if (code.startsWith("HPE_")) this.#end("transport", `the answer is not HTTP: ${code}`);
    else this.#end("transport", `no answer: ${code}`);
  }

  #endForLargeHeaders(): void {
    this.#end("too_large", `headers past ${this.limits.headerBytes} bytes`);
  }

  #end(end: ExchangeEnd["end"], says: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const endedAt = performance.now();
    for (const timer of this.#timers) clearTimeout(timer);
    this.#answer?.bodyReader.stop();
    this.signal.removeEventListener("abort", this.#callOff);
    this.#request?.destroy();
    this.socket.destroy();
    const sentTime = this.#sentAt === undefined ? {} : { sentAt: this.#sentAt };
    this.resolve({ end, says, endedAt, ...sentTime, ...this.#answerSoFar() });
  }

  #answerSoFar(): Pick<ExchangeEnd, "answer"> {
    if (!this.#answer) return {};
    const { message, headersAt, bodyReader } = this.#answer;
    const headers = answerHeaders(message.rawHeaders);
    return { answer: { headersAt, status: message.statusCode!, headers, body: bodyReader.bytes() } };
  }
}
