import { get, isObject, parseJson } from "../json.ts";

/** A server's response to one request of ours (JSON-RPC 2.0). */
export type Rpc = { result: unknown } | { error: { code: unknown; message: unknown; data: unknown } };

/** Most events of one stream, and most messages of one batch, that are searched for our response. */
const MAX_MESSAGES = 1_000;

/**
 * Makes a request. Its members are in the order in which the protocol's own client writes them, and `params` is left
 * out where there are none.
 */
export const createRequest = (id: number, method: string, params?: unknown): Uint8Array =>
  Buffer.from(JSON.stringify({ method, params, jsonrpc: "2.0", id }));

export const createNotification = (method: string): Uint8Array =>
  Buffer.from(JSON.stringify({ jsonrpc: "2.0", method }));

/**
 * Reads the data of the events in a `text/event-stream` (WHATWG HTML section 9.2.6). An incomplete last event is left
 * out.
 */
function readEvents(body: Uint8Array): string[] {
  const text = new TextDecoder("utf-8").decode(body).replace(/\r\n?/g, "\n");
  const whole = text.endsWith("\n\n") ? text : text.slice(0, Math.max(0, text.lastIndexOf("\n\n")));
  return whole.split("\n\n").map((event) =>
    event
      .split("\n")
      .flatMap((line) => (line.startsWith("data:") ? [line.slice(5).replace(/^ /, "")] : []))
      .join("\n"),
  );
}

function readMessages(body: Uint8Array, contentType: string): unknown[] {
  const texts = /text\/event-stream/i.test(contentType) ? readEvents(body).filter((data) => data !== "") : [body];
  return texts.slice(0, MAX_MESSAGES).flatMap((one) => {
    const parsed = parseJson(one);
    return Array.isArray(parsed) ? parsed.slice(0, MAX_MESSAGES) : [parsed];
  });
}

/**
 * Finds the response to the request with this id, in a body that is JSON or a stream of events; null when there is
 * none. Requests and notifications from the server, and responses to other ids, are skipped.
 */
export function findResponse(id: number, body: Uint8Array, contentType: string): Rpc | null {
  for (const message of readMessages(body, contentType)) {
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

/** Name and version of the client, which `initialize` and the revision without sessions send. */
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

/** Adds to the params the members of `_meta` that each request has in the revision without sessions. */
export const addMeta = (params: Params, client: ClientInfo): Params => ({
  ...params,
  _meta: {
    "io.modelcontextprotocol/protocolVersion": WITHOUT_SESSIONS,
    "io.modelcontextprotocol/clientInfo": client,
    "io.modelcontextprotocol/clientCapabilities": {},
    ...params._meta,
  },
});

/** Encodes a header's value: plain where possible, else base64 with the marks that the protocol revision defines. */
const encodeHeader = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith("=?base64?")
    ? value
    : `=?base64?${Buffer.from(value).toString("base64")}?=`;

/**
 * Headers of a request in the MCP revision {@link WITHOUT_SESSIONS}: the method, and the name of the tool that is
 * called, so that a gateway can route without reading the body.
 */
export function headersOf(method: string, params: Params): Record<string, string> {
  const name = params.name;
  return { "mcp-method": method, ...(typeof name === "string" ? { "mcp-name": encodeHeader(name) } : {}) };
}
