import { get, isObject, parseJson } from "../json.ts";

/** A server's response to one request of ours (JSON-RPC 2.0). */
export type Rpc = { result: unknown } | { error: { code: unknown; message: unknown; data: unknown } };

/** Most events of one stream, and messages of one batch, among which our response is looked for. */
const MAX_MESSAGES = 1_000;

/**
 * A request. Its members are in the order in which the protocol's own client writes them; without params there is no
 * such member.
 */
export const question = (id: number, method: string, params?: unknown): Uint8Array =>
  Buffer.from(JSON.stringify({ method, params, jsonrpc: "2.0", id }));

export const notice = (method: string): Uint8Array => Buffer.from(JSON.stringify({ jsonrpc: "2.0", method }));

/** Data of the events of a `text/event-stream` (WHATWG HTML section 9.2.6); an event that was cut off is left out. */
function events(body: Uint8Array): string[] {
  const text = new TextDecoder("utf-8").decode(body).replace(/\r\n?/g, "\n");
  const whole = text.endsWith("\n\n") ? text : text.slice(0, Math.max(0, text.lastIndexOf("\n\n")));
  return whole.split("\n\n").map((event) =>
    event
      .split("\n")
      .flatMap((line) => (line.startsWith("data:") ? [line.slice(5).replace(/^ /, "")] : []))
      .join("\n"),
  );
}

function messages(body: Uint8Array, contentType: string): unknown[] {
  const texts = /text\/event-stream/i.test(contentType) ? events(body).filter((data) => data !== "") : [body];
  return texts.slice(0, MAX_MESSAGES).flatMap((one) => {
    const parsed = parseJson(one);
    return Array.isArray(parsed) ? parsed.slice(0, MAX_MESSAGES) : [parsed];
  });
}

/**
 * The response to the request with this id, in a body that is JSON or a stream of events; null when there is none.
 * Requests and notifications of the server, and responses to other ids, are skipped.
 */
export function answerTo(id: number, body: Uint8Array, contentType: string): Rpc | null {
  for (const message of messages(body, contentType)) {
    if (!isObject(message) || message.id !== id || "method" in message) continue;
    const error = get(message, "error");
    if (isObject(error)) return { error: { code: error.code, message: error.message, data: error.data } };
    if (get(message, "result") !== undefined) return { result: message.result };
  }
  return null;
}

/** The revision that a session asks for first. A server may answer with an older one, which is then used. */
export const WITH_SESSIONS = "2025-11-25";
/** The revision without sessions: each request names its client and its revision. */
export const WITHOUT_SESSIONS = "2026-07-28";

/** The client's name, as `initialize` and the revision without sessions carry it. */
export interface ClientInfo {
  name: string;
  version: string;
}

export const CLIENT: ClientInfo = { name: "touchstone", version: "1" };

/** A server without sessions refuses `initialize` with this code and lists the revisions that it supports. */
const UNSUPPORTED_VERSION = -32_022;

export function speaksOnlyWithoutSessions(rpc: Rpc | null): boolean {
  if (!rpc || !("error" in rpc) || rpc.error.code !== UNSUPPORTED_VERSION) return false;
  const supported = get(rpc.error.data, "supported");
  return Array.isArray(supported) && supported.includes(WITHOUT_SESSIONS);
}

type Params = Record<string, unknown> & { _meta?: Record<string, unknown> };

/** Adds to the params what each request of the revision without sessions has in its `_meta`. */
export const withMeta = (params: Params, client: ClientInfo): Params => ({
  ...params,
  _meta: {
    "io.modelcontextprotocol/protocolVersion": WITHOUT_SESSIONS,
    "io.modelcontextprotocol/clientInfo": client,
    "io.modelcontextprotocol/clientCapabilities": {},
    ...params._meta,
  },
});

/** A header's value: plain where it can be, else base64 with the marks that the revision defines for it. */
const asHeader = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith("=?base64?")
    ? value
    : `=?base64?${Buffer.from(value).toString("base64")}?=`;

/**
 * Headers of every request in the MCP revision {@link WITHOUT_SESSIONS}: the method and the name of what is called, so that a
 * gateway can route without reading the body.
 */
export function headersOf(method: string, params: Params): Record<string, string> {
  const name = params.name;
  return { "mcp-method": method, ...(typeof name === "string" ? { "mcp-name": asHeader(name) } : {}) };
}
