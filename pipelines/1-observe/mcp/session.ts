import type { Egress, EgressResult, Profile } from "../../../infra/egress/egress.ts";
import { get, isObject, text } from "../json.ts";
import { CLIENT, dressed, headersOf, speaksOnlyWithoutSessions, WITH_SESSIONS, WITHOUT_SESSIONS } from "./revision.ts";
import { answerTo, notice, question, type Rpc } from "./rpc.ts";

/** Pages of `tools/list` that are read, and the ms they may take together: a list is not what is being bought. */
const MAX_PAGES = 5;
const LIST_MS = 5_000;
/** A goodbye is a courtesy: it may not cost more than this, ms. */
const GOODBYE_MS = 1_000;

export interface Limits {
  profile: Profile;
  /** For the whole exchange, ms. */
  totalMs: number;
  signal?: AbortSignal | undefined;
}

/** One question and how it ended: the HTTP exchange, and what of it was an answer to us. */
export interface Said {
  http: EgressResult;
  rpc: Rpc | null;
}

export interface Listed {
  /** null: the list was not read to its end, and the tool was not in what was. */
  present: boolean | null;
  inputSchema: unknown;
  outputSchema: unknown;
}

const late = (): EgressResult => ({ outcome: "timeout", says: "no time was left to ask", totalMs: 0, sent: false });

/**
 * One MCP session over HTTP (streamable transport of the 2025 revisions; a server that keeps no sessions any more is
 * spoken to in the revision of 2026), made for one call and left afterwards. Every message is an exchange of its own
 * through egress: checked address, bounded bytes, bounded time. Never throws for what the server does.
 */
export class Session {
  readonly #began = performance.now();
  #id = 0;
  #session: string | null = null;
  #protocol: string | null = null;

  constructor(
    private readonly egress: Egress,
    private readonly url: string,
    private readonly limits: Limits,
  ) {}

  #left(): number {
    return Math.floor(this.limits.totalMs - (performance.now() - this.#began));
  }

  #send(
    method: string,
    body: Uint8Array | null,
    withinMs: number,
    more: Record<string, string> = {},
  ): Promise<EgressResult> {
    const deadlineMs = Math.min(withinMs, this.#left());
    if (deadlineMs <= 0) return Promise.resolve(late());
    const { profile, signal } = this.limits;
    return this.egress.fetch({
      url: this.url,
      method,
      headers: {
        accept: "application/json, text/event-stream",
        ...(body ? { "content-type": "application/json" } : {}),
        ...(this.#session === null ? {} : { "mcp-session-id": this.#session }),
        ...(this.#protocol === null ? {} : { "mcp-protocol-version": this.#protocol }),
        ...more,
      },
      ...(body ? { body } : {}),
      profile,
      deadlineMs,
      ...(signal ? { signal } : {}),
    });
  }

  async #ask(method: string, params: Record<string, unknown>, withinMs = Number.POSITIVE_INFINITY): Promise<Said> {
    const id = ++this.#id;
    const alone = this.#protocol === WITHOUT_SESSIONS;
    const body = question(id, method, alone ? dressed(params) : params);
    const http = await this.#send("POST", body, withinMs, alone ? headersOf(method, params) : {});
    // A stream that was not closed after the answer still held the answer.
    const rpc = http.body ? answerTo(id, http.body, http.headers?.["content-type"] ?? "") : null;
    return { http, rpc };
  }

  /** `initialize` and the notice that follows it. False: what was said is no welcome, and nothing more is asked. */
  async open(): Promise<Said & { ok: boolean }> {
    const params = { protocolVersion: WITH_SESSIONS, capabilities: {}, clientInfo: CLIENT };
    const said = await this.#ask("initialize", params);
    if (speaksOnlyWithoutSessions(said.rpc)) {
      this.#protocol = WITHOUT_SESSIONS;
      return { ...said, ok: true };
    }
    const version = said.rpc && "result" in said.rpc ? text(get(said.rpc.result, "protocolVersion"), 40) : undefined;
    const session = said.http.headers?.["mcp-session-id"];
    // Visible ASCII and nothing else, says the transport: anything else could not be sent back.
    const usable = session === undefined || /^[\x21-\x7e]{1,1024}$/.test(session);
    if (version === undefined || !/^[\w.-]+$/.test(version) || !usable) return { ...said, ok: false };
    this.#session = session ?? null;
    this.#protocol = version;
    await this.#send("POST", notice("notifications/initialized"), Number.POSITIVE_INFINITY);
    return { ...said, ok: true };
  }

  /** What `tools/list` says of one tool. */
  async list(name: string): Promise<Listed> {
    const until = performance.now() + LIST_MS;
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const { rpc } = await this.#ask("tools/list", cursor === undefined ? {} : { cursor }, until - performance.now());
      const result = rpc && "result" in rpc ? rpc.result : undefined;
      const tools = get(result, "tools");
      if (!Array.isArray(tools)) return { present: null, inputSchema: undefined, outputSchema: undefined };
      const found = tools.find((tool) => get(tool, "name") === name);
      if (isObject(found)) return { present: true, inputSchema: found.inputSchema, outputSchema: found.outputSchema };
      cursor = text(get(result, "nextCursor"), 4096);
      if (cursor === undefined) return { present: false, inputSchema: undefined, outputSchema: undefined };
    }
    return { present: null, inputSchema: undefined, outputSchema: undefined };
  }

  call(name: string, args: Record<string, unknown>, meta: Record<string, unknown> | null): Promise<Said> {
    return this.#ask("tools/call", { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  }

  /** Gives the session back, if there is one. */
  async close(): Promise<void> {
    if (this.#session !== null) await this.#send("DELETE", null, GOODBYE_MS);
  }
}
