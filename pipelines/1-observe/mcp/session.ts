import { systemClock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import type { ToolCall } from "../probe/request.ts";
import { STOCK_CLIENT } from "../probe/stock.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import { absent, type ListedTool, type Replied, type ToolAnswer, unread, type Welcome } from "./answers.ts";
import {
  CLIENT,
  type ClientInfo,
  headersOf,
  notice,
  question,
  WITH_SESSIONS,
  WITHOUT_SESSIONS,
  withMeta,
} from "./rpc.ts";

/** Pages of `tools/list` that are read. */
const MAX_PAGES = 5;
/** Time for all of these pages together, ms. */
const LIST_MS = 5_000;
/** Longest time for closing a session, ms: it is only a courtesy to the server. */
const CLOSE_MS = 1_000;

export interface Limits {
  profile: Profile;
  /** Time for the whole exchange, ms. */
  totalMs: number;
  signal?: AbortSignal | undefined;
  /** Name of the stock client as which the requests leave; undefined: they leave as ours (stock.ts). */
  stock?: string | undefined;
}

/** What `tools/list` holds of one tool. */
export interface Listed {
  /** null: the list was not read to its end, and what was read did not name the tool. */
  present: boolean | null;
  tool: ListedTool | null;
}

const NO_WELCOME: Welcome = { answered: false, alone: false, version: undefined };

const late = (): EgressResult => ({ outcome: "timeout", says: "no time was left to ask", totalMs: 0, sent: false });

/**
 * One MCP session over HTTP (the streamable transport of the 2025 revisions; a server without sessions is spoken to in
 * the revision of 2026), opened for one call. Every message is an exchange of its own through egress, with a checked
 * address, bounded bytes and bounded time. Never throws for what the server does.
 */
class Session {
  readonly #began = systemClock.monotonic();
  /** Ids begin at 0, as those of the protocol's own client do. */
  #id = 0;
  #session: string | null = null;
  #protocol: string | null = null;
  /** Time in which the server waited for us to read its responses, ms. It is not counted as the server's. */
  #reading = 0;

  constructor(
    private readonly egress: Egress,
    private readonly reader: Reader,
    private readonly url: string,
    private readonly limits: Limits,
  ) {}

  #left(): number {
    return Math.floor(this.limits.totalMs - (systemClock.monotonic() - this.#began - this.#reading));
  }

  #send(
    method: string,
    body: Uint8Array | null,
    withinMs: number,
    more: Record<string, string> = {},
  ): Promise<EgressResult> {
    const deadlineMs = Math.min(withinMs, this.#left());
    if (deadlineMs <= 0) return Promise.resolve(late());
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
  ): Promise<Replied> {
    const id = this.#id++;
    const alone = this.#protocol === WITHOUT_SESSIONS;
    const body = question(id, method, alone ? withMeta(params ?? {}, this.#client) : params);
    const http = await this.#send("POST", body, withinMs, alone ? headersOf(method, params ?? {}) : {});
    return { id, http };
  }

  /** Waits for the reading of a response and adds its time to `#reading`. */
  async #read<T>(read: Promise<T>): Promise<T> {
    const began = systemClock.monotonic();
    const said = await read;
    this.#reading += systemClock.monotonic() - began;
    return said;
  }

  /**
   * Sends `initialize` and the notification that follows it. Not `ok`: no session was opened, and nothing more is sent.
   */
  async open(): Promise<{ replied: Replied; answered: boolean; ok: boolean }> {
    const params = { protocolVersion: WITH_SESSIONS, capabilities: {}, clientInfo: this.#client };
    const replied = await this.#ask("initialize", params);
    const read = replied.http.body ? await this.#read(this.reader.ask("welcome", replied)) : null;
    const { answered, alone, version } = read?.ok ? read.value : NO_WELCOME;
    if (alone) {
      this.#protocol = WITHOUT_SESSIONS;
      return { replied, answered, ok: true };
    }
    const session = replied.http.headers?.["mcp-session-id"];
    // The transport allows visible ASCII only; an id with anything else could not be sent back.
    const usable = session === undefined || /^[\x21-\x7e]{1,1024}$/.test(session);
    if (version === undefined || !/^[\w.-]+$/.test(version) || !usable) return { replied, answered, ok: false };
    this.#session = session ?? null;
    this.#protocol = version;
    await this.#send("POST", notice("notifications/initialized"), Number.POSITIVE_INFINITY);
    return { replied, answered, ok: true };
  }

  /** Looks for one tool in `tools/list`, page by page. */
  async list(name: string): Promise<Listed> {
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

  call(name: string, args: Record<string, unknown>, meta: Record<string, unknown> | null): Promise<Replied> {
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
  /** What the record of a tool's call holds beside that of an HTTP call. */
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
  /** For a blind call: name of the stock client as which it leaves (stock.ts). */
  stock?: string | undefined;
}

const NO_LIST: Listed = { present: null, tool: null };

/**
 * Calls a tool in a session of its own, from `initialize` to the answer. The payment is sent with `tools/call` only.
 * `result.totalMs` is the time of that request alone; `initialize_ms` stands beside it.
 */
export async function callTool(egress: Egress, ask: ToolQuestion, reader: Reader = ownReader): Promise<ToolExchange> {
  const { tool, payment } = ask;
  const session = new Session(egress, reader, ask.url, ask);
  const { replied, ...opened } = await session.open();
  const answered = replied.http.outcome === "answered" && opened.answered;
  const initialize_ms = answered ? Math.round(replied.http.totalMs) : null;
  const seen = { initialize_ms, tool: tool.name, tool_present: null };
  if (!opened.ok) return { ...refused(await answerOf(reader, replied)), seen };
  const listed = payment === undefined ? await session.list(tool.name) : NO_LIST;
  const known = { ...seen, tool_present: listed.present };
  if (listed.present === false) {
    await session.close();
    return { ...absent(tool.name), seen: known };
  }
  const meta = payment === undefined ? null : { [PAYMENT_KEY]: JSON.parse(Buffer.from(payment, "base64").toString()) };
  const said = await session.call(tool.name, argumentsOf(tool, listed), meta);
  await session.close();
  return { ...(await answerOf(reader, said)), seen: known, ...(listed.tool === null ? {} : { listed: listed.tool }) };
}

async function answerOf(reader: Reader, replied: Replied): Promise<ToolAnswer> {
  const read = await reader.ask("reply", replied);
  return read.ok ? read.value : unread(replied.http, read.says);
}

/**
 * Marks a response to `initialize` that opened no session: it comes not from the tool, so it is neither its answer nor
 * its price.
 */
function refused(said: ToolAnswer): ToolAnswer {
  const { result } = said;
  const ours = result.outcome === "answered" && result.raw !== undefined;
  const says = said.says ?? "it is no MCP server of a revision that we speak";
  return ours ? { result: { ...result, status: 502 }, payable: false, says } : { ...said, payable: false };
}

const argumentsOf = (tool: ToolCall, listed: Listed): Record<string, unknown> =>
  (tool.blind && listed.tool?.made) || tool.arguments;
