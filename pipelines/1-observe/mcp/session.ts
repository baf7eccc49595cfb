import { systemClock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import type { ToolCall } from "../probe/request.ts";
import { STOCK_CLIENT } from "../probe/stock.ts";
import { processReader, type Reader } from "../reading/reader.ts";
import {
  createAbsentAnswer,
  createUnreadableAnswer,
  type InitializeAnswer,
  type ListedTool,
  type PaymentForm,
  type Reply,
  type ToolAnswer,
} from "./answers.ts";
import {
  addMeta,
  type ClientInfo,
  createNotification,
  createRequest,
  DEFAULT_CLIENT,
  SESSION_REVISION,
  SESSIONLESS_REVISION,
  sessionlessHeaders,
} from "./rpc.ts";

/** Largest number of pages of `tools/list` that are read. */
const MAX_PAGES = 5;
/** Longest time for reading all pages of `tools/list`, ms. */
const LIST_TIMEOUT_MS = 5_000;
/** Longest time for closing a session, ms. Closing is optional. It frees resources of the server. */
const CLOSE_TIMEOUT_MS = 1_000;

export interface SessionOptions {
  profile: Profile;
  /** Time for the whole exchange, ms. */
  totalMs: number;
  signal?: AbortSignal | undefined;
  /**
   * Name of the stock client (one that sends requests like any buyer's) whose connection and headers the requests use
   * (stock.ts); undefined for our own client.
   */
  stock?: string | undefined;
}

/** The result of searching `tools/list` for one tool. */
export interface ToolListing {
  /** Does the list name the tool? null if the list was not read, or only a part of it that does not name the tool. */
  isPresent: boolean | null;
  tool: ListedTool | null;
}

const NO_ANSWER: InitializeAnswer = { hasRpcResponse: false, supportsOnlySessionless: false, version: undefined };

const createTimeoutResult = (): EgressResult => ({
  outcome: "timeout",
  says: "no time was left to ask",
  totalMs: 0,
  sent: false,
});

/**
 * One MCP session over HTTP, opened for one call. It uses the streamable transport of the 2025 revisions, or the
 * revision of 2026 for a server without sessions. Every message is a separate exchange through egress, with a checked
 * address, bounded bytes and bounded time. Never throws for anything that the server does.
 */
class Session {
  readonly #startedAt = systemClock.monotonic();
  /** Id of the next request. Ids begin at 0, as in the protocol's own client. */
  #nextId = 0;
  /** Session id that the server gave; null if it gave none. */
  #sessionId: string | null = null;
  /** Protocol revision of the session; null until it is known. */
  #revision: string | null = null;
  /** Time that this process took to read the server's responses, ms. It does not count as the server's time. */
  #readingMs = 0;

  constructor(
    private readonly egress: Egress,
    private readonly reader: Reader,
    private readonly url: string,
    private readonly options: SessionOptions,
  ) {}

  #timeLeft(): number {
    return Math.floor(this.options.totalMs - (systemClock.monotonic() - this.#startedAt - this.#readingMs));
  }

  #send(
    method: string,
    body: Uint8Array | null,
    withinMs: number,
    moreHeaders: Record<string, string> = {},
  ): Promise<EgressResult> {
    const deadlineMs = Math.min(withinMs, this.#timeLeft());
    if (deadlineMs <= 0) return Promise.resolve(createTimeoutResult());
    const { profile, signal, stock } = this.options;
    return this.egress.fetch({
      url: this.url,
      method,
      headers: {
        ...(this.#sessionId === null ? {} : { "mcp-session-id": this.#sessionId }),
        ...(this.#revision === null ? {} : { "mcp-protocol-version": this.#revision }),
        ...moreHeaders,
        ...(body ? { "content-type": "application/json", accept: "application/json, text/event-stream" } : {}),
      },
      ...(body ? { body } : {}),
      profile,
      deadlineMs,
      ...(signal ? { signal } : {}),
      ...(stock === undefined ? {} : { stock }),
    });
  }

  get #client(): ClientInfo {
    return this.options.stock === undefined ? DEFAULT_CLIENT : STOCK_CLIENT;
  }

  async #request(
    method: string,
    params: Record<string, unknown> | undefined,
    withinMs = Number.POSITIVE_INFINITY,
  ): Promise<Reply> {
    const id = this.#nextId++;
    const isSessionless = this.#revision === SESSIONLESS_REVISION;
    const body = createRequest(id, method, isSessionless ? addMeta(params ?? {}, this.#client) : params);
    const http = await this.#send(
      "POST",
      body,
      withinMs,
      isSessionless ? sessionlessHeaders(method, params ?? {}) : {},
    );
    return { id, http };
  }

  /** Waits until a response was read, and adds the time for that to `#readingMs`. */
  async #timeReading<T>(read: Promise<T>): Promise<T> {
    const startedAt = systemClock.monotonic();
    const result = await read;
    this.#readingMs += systemClock.monotonic() - startedAt;
    return result;
  }

  /**
   * Sends `initialize` and then `notifications/initialized`. If `isOpen` is false, no session was opened, and the
   * caller sends nothing more. `hasRpcResponse`: does the body hold a JSON-RPC response to `initialize`?
   */
  async open(): Promise<{ reply: Reply; hasRpcResponse: boolean; isOpen: boolean }> {
    const params = { protocolVersion: SESSION_REVISION, capabilities: {}, clientInfo: this.#client };
    const reply = await this.#request("initialize", params);
    const reading = reply.http.body ? await this.#timeReading(this.reader.ask("welcome", reply)) : null;
    const { hasRpcResponse, supportsOnlySessionless, version } = reading?.ok ? reading.value : NO_ANSWER;
    if (supportsOnlySessionless) {
      this.#revision = SESSIONLESS_REVISION;
      return { reply, hasRpcResponse, isOpen: true };
    }
    const session = reply.http.headers?.["mcp-session-id"];
    // The transport allows only visible ASCII in a session id. An id with other characters could not be sent back.
    const isUsable = session === undefined || /^[\x21-\x7e]{1,1024}$/.test(session);
    if (version === undefined || !/^[\w.-]+$/.test(version) || !isUsable)
      return { reply, hasRpcResponse, isOpen: false };
    this.#sessionId = session ?? null;
    this.#revision = version;
    await this.#send("POST", createNotification("notifications/initialized"), Number.POSITIVE_INFINITY);
    return { reply, hasRpcResponse, isOpen: true };
  }

  /** Searches `tools/list` for one tool, page by page. */
  async list(name: string): Promise<ToolListing> {
    let timeLeftMs = LIST_TIMEOUT_MS;
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const startedAt = systemClock.monotonic();
      const reply = await this.#request("tools/list", cursor === undefined ? undefined : { cursor }, timeLeftMs);
      timeLeftMs -= systemClock.monotonic() - startedAt;
      const read = reply.http.body ? await this.#timeReading(this.reader.ask("list", { ...reply, tool: name })) : null;
      if (!read?.ok || read.value === null) break;
      const { tool, nextCursor: next } = read.value;
      if (tool !== null || next === undefined) return { isPresent: tool !== null, tool };
      cursor = next;
    }
    return { isPresent: null, tool: null };
  }

  call(name: string, args: Record<string, unknown>, meta: Record<string, unknown> | null): Promise<Reply> {
    return this.#request("tools/call", { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  }

  /** Ends the session, if there is one. */
  async close(): Promise<void> {
    if (this.#sessionId !== null) await this.#send("DELETE", null, CLOSE_TIMEOUT_MS);
  }
}

/** Member of the call's `_meta` that holds the payment (x402 over MCP). */
export const PAYMENT_KEY = "x402/payment";

export interface ToolExchange extends ToolAnswer {
  /** Members that the record of a tool's call has besides those of an HTTP call. */
  recordMembers: {
    initialize_ms: number | null;
    tool: string;
    tool_present: boolean | null;
    /** The forms in which the payment was sent, in order; absent for a call without payment. */
    payment_forms?: PaymentForm[];
  };
  /** Schemas of the tool's input and output from `tools/list`; absent unless the list was read and names the tool. */
  listedTool?: Partial<Pick<ListedTool, "inputSchema" | "outputSchema">>;
}

/** A call of a tool that {@link callTool} makes. */
interface ToolRequest {
  url: string;
  tool: ToolCall;
  profile: Profile;
  /** Time for the whole exchange, ms. */
  totalMs: number;
  /** The signed payment, base64 of its JSON. If it is set, the tool is called without reading `tools/list` first. */
  payment?: string | undefined;
  /** Form in which the payment is sent first; default `object`. */
  paymentForm?: PaymentForm | undefined;
  signal?: AbortSignal | undefined;
  /**
   * Set for a blind call (paid from a wallet that the seller does not know): the stock client whose connection and
   * headers it uses (stock.ts).
   */
  stock?: string | undefined;
}

const NO_LIST: ToolListing = { isPresent: null, tool: null };

/**
 * Calls a tool in a new session, from `initialize` to the answer. Only `tools/call` sends the payment. `result.totalMs`
 * is the time of that request alone; the time of `initialize` is in `initialize_ms`.
 */
export async function callTool(
  egress: Egress,
  request: ToolRequest,
  reader: Reader = processReader,
): Promise<ToolExchange> {
  const { tool, payment } = request;
  const session = new Session(egress, reader, request.url, request);
  const { reply: openReply, ...opened } = await session.open();
  const isInitializeAnswered = openReply.http.outcome === "answered" && opened.hasRpcResponse;
  const initialize_ms = isInitializeAnswered ? Math.round(openReply.http.totalMs) : null;
  const recordMembers = { initialize_ms, tool: tool.name, tool_present: null };
  if (!opened.isOpen) return { ...markAsNotFromTool(await readToolAnswer(reader, openReply)), recordMembers };
  const toolListing = payment === undefined ? await session.list(tool.name) : NO_LIST;
  const membersWithPresence = { ...recordMembers, tool_present: toolListing.isPresent };
  if (toolListing.isPresent === false) {
    await session.close();
    return { ...createAbsentAnswer(tool.name), recordMembers: membersWithPresence };
  }
  const call = async (meta: Record<string, unknown> | null): Promise<ToolAnswer> =>
    readToolAnswer(reader, await session.call(tool.name, argumentsOf(tool, toolListing), meta));
  const paid =
    payment === undefined
      ? null
      : await callWithPayment(call, payment, request.paymentForm, request.stock === undefined);
  const answer = paid?.answer ?? (await call(null));
  await session.close();
  return {
    ...answer,
    recordMembers: { ...membersWithPresence, ...(paid ? { payment_forms: paid.forms } : {}) },
    ...(toolListing.tool === null ? {} : { listedTool: toolListing.tool }),
  };
}

/**
 * Calls the tool with a payment. If the seller answers with its demand, it may take payments only in the other form, so
 * the call is repeated once in that form. Both carry one signature, whose nonce moves money only once.
 * @param mayRepeat false for a blind call, since no other client repeats it: the seller would know that it is ours
 * @returns the answer that counts, which is the first one if the second was no other than a demand or was not sent; and
 * the forms that were sent
 */
async function callWithPayment(
  call: (meta: Record<string, unknown>) => Promise<ToolAnswer>,
  payment: string,
  firstForm: PaymentForm = "object",
  mayRepeat = true,
): Promise<{ answer: ToolAnswer; forms: PaymentForm[] }> {
  const metaOf = (form: PaymentForm) => ({
    [PAYMENT_KEY]: form === "string" ? payment : JSON.parse(Buffer.from(payment, "base64").toString()),
  });
  const answer = await call(metaOf(firstForm));
  if (answer.paymentForm === undefined || !mayRepeat) return { answer, forms: [firstForm] };
  const otherForm = firstForm === "object" ? "string" : "object";
  const otherAnswer = await call(metaOf(otherForm));
  const { result } = otherAnswer;
  if ("sent" in result && !result.sent) return { answer, forms: [firstForm] };
  return { answer: result.status === 402 ? answer : otherAnswer, forms: [firstForm, otherForm] };
}

async function readToolAnswer(reader: Reader, reply: Reply): Promise<ToolAnswer> {
  const read = await reader.ask("reply", reply);
  return read.ok ? read.value : createUnreadableAnswer(reply.http, read.says);
}

/**
 * Marks a response to `initialize` that opened no session. The tool did not send it, so it counts neither as the tool's
 * answer nor as its price.
 */
function markAsNotFromTool(answer: ToolAnswer): ToolAnswer {
  const { result } = answer;
  const isConverted = result.outcome === "answered" && result.raw !== undefined;
  const says = answer.says ?? "it is no MCP server of a revision that we speak";
  return isConverted ? { result: { ...result, status: 502 }, isPayable: false, says } : { ...answer, isPayable: false };
}

const argumentsOf = (tool: ToolCall, toolListing: ToolListing): Record<string, unknown> =>
  (tool.isInputUnknown && toolListing.tool?.sampleArguments) || tool.arguments;
