import { systemClock } from "../../../infra/clock.ts";
import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import type { ToolCall } from "../probe/request.ts";
import { STOCK_CLIENT } from "../probe/stock.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import { absent, type ListedTool, type Replied, type ToolAnswer, unread, type Welcome } from "./answers.ts";
import {
  CLIENT,
  type ClientInfo,
  dressed,
  headersOf,
  notice,
  question,
  WITH_SESSIONS,
  WITHOUT_SESSIONS,
} from "./rpc.ts";

/** Pages of `tools/list` that are read, and the ms they may take together: a list is not what is being bought. */
const MAX_PAGES = 5;
const LIST_MS = 5_000;
/** Longest time for closing a session, ms: only a courtesy to the server. */
const CLOSE_MS = 1_000;

export interface Limits {
  profile: Profile;
  /** For the whole exchange, ms. */
  totalMs: number;
  signal?: AbortSignal | undefined;
  /** In whose name it leaves, where it shall look like a stock client's (stock.ts). */
  stock?: string | undefined;
}

/** What the list says: is the tool there, and how is it called? */
export interface Listed {
  /** null: the list was not read to its end, and the tool was not in what was. */
  present: boolean | null;
  tool: ListedTool | null;
}

const NO_WELCOME: Welcome = { answered: false, alone: false, version: undefined };

const late = (): EgressResult => ({ outcome: "timeout", says: "no time was left to ask", totalMs: 0, sent: false });

/**
 * One MCP session over HTTP (streamable transport of the 2025 revisions; a server that keeps no sessions any more is
 * spoken to in the revision of 2026), made for one call and left afterwards. Every message is an exchange of its own
 * through egress: checked address, bounded bytes, bounded time. Never throws for what the server does.
 */
class Session {
  readonly #began = systemClock.monotonic();
  /** The first question is 0, as the protocol's own client counts. */
  #id = 0;
  #session: string | null = null;
  #protocol: string | null = null;
  /** ms in which the server waited for us to read what it had said: they are ours. */
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
    const body = question(id, method, alone ? dressed(params ?? {}, this.#client) : params);
    const http = await this.#send("POST", body, withinMs, alone ? headersOf(method, params ?? {}) : {});
    return { id, http };
  }

  /** Reads an answer; the time that this takes is not counted as the server's. */
  async #read<T>(read: Promise<T>): Promise<T> {
    const began = systemClock.monotonic();
    const said = await read;
    this.#reading += systemClock.monotonic() - began;
    return said;
  }

  /** `initialize` and the notice that follows it. Not `ok`: what was said is no welcome, and nothing more is asked. */
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
    // Visible ASCII and nothing else, says the transport: anything else could not be sent back.
    const usable = session === undefined || /^[\x21-\x7e]{1,1024}$/.test(session);
    if (version === undefined || !/^[\w.-]+$/.test(version) || !usable) return { replied, answered, ok: false };
    this.#session = session ?? null;
    this.#protocol = version;
    await this.#send("POST", notice("notifications/initialized"), Number.POSITIVE_INFINITY);
    return { replied, answered, ok: true };
  }

  /** What `tools/list` says of one tool. */
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

  /** Gives the session back, if there is one. */
  async close(): Promise<void> {
    if (this.#session !== null) await this.#send("DELETE", null, CLOSE_MS);
  }
}

/** Member of the call's `_meta` that a payment travels in (x402 over MCP). */
export const PAYMENT_KEY = "x402/payment";

export interface ToolExchange extends ToolAnswer {
  /** For the record, beside what every exchange has. */
  seen: { initialize_ms: number | null; tool: string; tool_present: boolean | null };
  /** What the list said of the tool's input and output; absent when it was not asked. */
  listed?: Partial<Pick<ListedTool, "inputSchema" | "outputSchema">>;
}

interface ToolQuestion {
  url: string;
  tool: ToolCall;
  profile: Profile;
  totalMs: number;
  /** The signed payment, base64 of its JSON: with it the tool is called at once, without asking for the list. */
  payment?: string | undefined;
  signal?: AbortSignal | undefined;
  /** Of a leg of a blind call: in whose name it leaves (stock.ts). */
  stock?: string | undefined;
}

const NO_LIST: Listed = { present: null, tool: null };

/**
 * One call of a tool from `initialize` to its answer, in a session of its own. The payment leaves with `tools/call`
 * only. `result.totalMs` is the time of that call alone; `initialize_ms` stands beside it.
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

/** Whatever was said in place of a welcome, it did not come from the tool: it is neither its answer nor its price. */
function refused(said: ToolAnswer): ToolAnswer {
  const { result } = said;
  const ours = result.outcome === "answered" && result.raw !== undefined;
  const says = said.says ?? "it is no MCP server of a revision that we speak";
  return ours ? { result: { ...result, status: 502 }, payable: false, says } : { ...said, payable: false };
}

const argumentsOf = (tool: ToolCall, listed: Listed): Record<string, unknown> =>
  (tool.blind && listed.tool?.made) || tool.arguments;
