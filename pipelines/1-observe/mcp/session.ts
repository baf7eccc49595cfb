import { systemClock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import type { ToolCall } from "../probe/request.ts";
import { STOCK_CLIENT } from "../probe/stock.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import {
  createAbsentAnswer,
  createUnreadAnswer,
  type InitializeAnswer,
  type ListedTool,
  type Reply,
  type ToolAnswer,
} from "./answers.ts";
import {
  addMeta,
  CLIENT,
  type ClientInfo,
  createNotification,
  createRequest,
  headersOf,
  WITH_SESSIONS,
  WITHOUT_SESSIONS,
} from "./rpc.ts";

/** Most pages of `tools/list` that are read. */
const MAX_PAGES = 5;
/** Time for all of these pages together, ms. */
const LIST_MS = 5_000;
/** Longest time for closing a session, ms. Closing is optional; it frees the server's resources. */
const CLOSE_MS = 1_000;

export interface Limits {
  profile: Profile;
  /** Time for the whole exchange, ms. */
  totalMs: number;
  signal?: AbortSignal | undefined;
  /** Name of the stock client whose connection and headers the requests use (stock.ts); undefined: our own. */
  stock?: string | undefined;
}

/** What `tools/list` has about one tool. */
export interface ToolListing {
  /** null: the list was not read to its end, and the part that was read did not name the tool. */
  present: boolean | null;
  tool: ListedTool | null;
}

const NO_ANSWER: InitializeAnswer = { answered: false, onlyWithoutSessions: false, version: undefined };

const createTimeout = (): EgressResult => ({
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
  readonly #began = systemClock.monotonic();
  /** Id of the next request. Ids begin at 0, as in the protocol's own client. */
  #id = 0;
  #session: string | null = null;
  #protocol: string | null = null;
  /** Time that we took to read the server's responses, ms. It is not counted as the server's time. */
  #readingMs = 0;

  constructor(
    private readonly egress: Egress,
    private readonly reader: Reader,
    private readonly url: string,
    private readonly limits: Limits,
  ) {}

  #timeLeft(): number {
    return Math.floor(this.limits.totalMs - (systemClock.monotonic() - this.#began - this.#readingMs));
  }

  #send(
    method: string,
    body: Uint8Array | null,
    withinMs: number,
    more: Record<string, string> = {},
  ): Promise<EgressResult> {
    const deadlineMs = Math.min(withinMs, this.#timeLeft());
    if (deadlineMs <= 0) return Promise.resolve(createTimeout());
    const { profile, signal, stock } = this.limits;
    return this.egress.fetch({
      url: this.url,
      method,
      headers: {
        ...(this.#session === null ? {} : { "mcp-session-id": this.#session }),
        ...(this.#protocol === null ? {} : { "mcp-protocol-version": this.#protocol }),
        ...more,
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
    return this.limits.stock === undefined ? CLIENT : STOCK_CLIENT;
  }

  async #ask(
    method: string,
    params: Record<string, unknown> | undefined,
    withinMs = Number.POSITIVE_INFINITY,
  ): Promise<Reply> {
    const id = this.#id++;
    const alone = this.#protocol === WITHOUT_SESSIONS;
    const body = createRequest(id, method, alone ? addMeta(params ?? {}, this.#client) : params);
    const http = await this.#send("POST", body, withinMs, alone ? headersOf(method, params ?? {}) : {});
    return { id, http };
  }

  /** Waits until a response was read, and adds the time to `#reading`. */
  async #read<T>(read: Promise<T>): Promise<T> {
    const began = systemClock.monotonic();
    const value = await read;
    this.#readingMs += systemClock.monotonic() - began;
    return value;
  }

  /**
   * Sends `initialize` and the notification after it. If `ok` is false, no session was opened, and the caller sends
   * nothing more.
   */
  async open(): Promise<{ replied: Reply; answered: boolean; ok: boolean }> {
    const params = { protocolVersion: WITH_SESSIONS, capabilities: {}, clientInfo: this.#client };
    const replied = await this.#ask("initialize", params);
    const read = replied.http.body ? await this.#read(this.reader.ask("welcome", replied)) : null;
    const { answered, onlyWithoutSessions, version } = read?.ok ? read.value : NO_ANSWER;
    if (onlyWithoutSessions) {
      this.#protocol = WITHOUT_SESSIONS;
      return { replied, answered, ok: true };
    }
    const session = replied.http.headers?.["mcp-session-id"];
    // The transport allows only visible ASCII in a session id; another id could not be sent back.
    const usable = session === undefined || /^[\x21-\x7e]{1,1024}$/.test(session);
    if (version === undefined || !/^[\w.-]+$/.test(version) || !usable) return { replied, answered, ok: false };
    this.#session = session ?? null;
    this.#protocol = version;
    await this.#send("POST", createNotification("notifications/initialized"), Number.POSITIVE_INFINITY);
    return { replied, answered, ok: true };
  }

  /** Looks for one tool in `tools/list`, page by page. */
  async list(name: string): Promise<ToolListing> {
    let left = LIST_MS;
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const began = systemClock.monotonic();
      const replied = await this.#ask("tools/list", cursor === undefined ? undefined : { cursor }, left);
      left -= systemClock.monotonic() - began;
      const read = replied.http.body ? await this.#read(this.reader.ask("list", { ...replied, tool: name })) : null;
      if (!read?.ok || read.value === null) break;
      const { tool, next } = read.value;
      if (tool !== null || next === undefined) return { present: tool !== null, tool };
      cursor = next;
    }
    return { present: null, tool: null };
  }

  call(name: string, args: Record<string, unknown>, meta: Record<string, unknown> | null): Promise<Reply> {
    return this.#ask("tools/call", { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  }

  /** Ends the session, if there is one. */
  async close(): Promise<void> {
    if (this.#session !== null) await this.#send("DELETE", null, CLOSE_MS);
  }
}

/** Member of the call's `_meta` that holds the payment (x402 over MCP). */
export const PAYMENT_KEY = "x402/payment";

export interface ToolExchange extends ToolAnswer {
  /** Members that the record of a tool's call has besides those of an HTTP call. */
  seen: { initialize_ms: number | null; tool: string; tool_present: boolean | null };
  /** Schemas of the tool's input and output from the list; absent when the list was not read. */
  listed?: Partial<Pick<ListedTool, "inputSchema" | "outputSchema">>;
}

interface ToolQuestion {
  url: string;
  tool: ToolCall;
  profile: Profile;
  totalMs: number;
  /** The signed payment, base64 of its JSON. With it the tool is called at once, without reading the list. */
  payment?: string | undefined;
  signal?: AbortSignal | undefined;
  /** Set for a blind call: the stock client whose connection and headers it uses (stock.ts). */
  stock?: string | undefined;
}

const NO_LIST: ToolListing = { present: null, tool: null };

/**
 * Calls a tool in a new session, from `initialize` to the answer. Only `tools/call` sends the payment. `result.totalMs`
 * is the time of that request alone; the time of `initialize` is in `initialize_ms`.
 */
export async function callTool(egress: Egress, ask: ToolQuestion, reader: Reader = ownReader): Promise<ToolExchange> {
  const { tool, payment } = ask;
  const session = new Session(egress, reader, ask.url, ask);
  const { replied, ...opened } = await session.open();
  const answered = replied.http.outcome === "answered" && opened.answered;
  const initialize_ms = answered ? Math.round(replied.http.totalMs) : null;
  const seen = { initialize_ms, tool: tool.name, tool_present: null };
  if (!opened.ok) return { ...markNotTool(await readToolAnswer(reader, replied)), seen };
  const listed = payment === undefined ? await session.list(tool.name) : NO_LIST;
  const known = { ...seen, tool_present: listed.present };
  if (listed.present === false) {
    await session.close();
    return { ...createAbsentAnswer(tool.name), seen: known };
  }
  const meta = payment === undefined ? null : { [PAYMENT_KEY]: JSON.parse(Buffer.from(payment, "base64").toString()) };
  const reply = await session.call(tool.name, argumentsOf(tool, listed), meta);
  await session.close();
  return {
    ...(await readToolAnswer(reader, reply)),
    seen: known,
    ...(listed.tool === null ? {} : { listed: listed.tool }),
  };
}

async function readToolAnswer(reader: Reader, replied: Reply): Promise<ToolAnswer> {
  const read = await reader.ask("reply", replied);
  return read.ok ? read.value : createUnreadAnswer(replied.http, read.says);
}

/**
 * Marks a response to `initialize` that opened no session. It does not come from the tool, so it is neither the tool's
 * answer nor its price.
 */
function markNotTool(answer: ToolAnswer): ToolAnswer {
  const { result } = answer;
  const ours = result.outcome === "answered" && result.raw !== undefined;
  const says = answer.says ?? "it is no MCP server of a revision that we speak";
  return ours ? { result: { ...result, status: 502 }, payable: false, says } : { ...answer, payable: false };
}

const argumentsOf = (tool: ToolCall, listed: ToolListing): Record<string, unknown> =>
  (tool.blind && listed.tool?.sampleArguments) || tool.arguments;
