import { get, isObject, parseJson } from "../json.ts";

/** A server's response to one request of ours (JSON-RPC 2.0). */
export type RpcResponse = { result: unknown } | { error: { code: unknown; message: unknown; data: unknown } };

/** Largest number of events of one stream, and most messages of one batch, that are searched for our response. */
const MAX_MESSAGES = 1_000;

/**
 * Makes a JSON-RPC request. Its members have the order in which the protocol's own client writes them. Undefined
 * `params` are left out.
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
  const completeEvents = text.endsWith("\n\n") ? text : text.slice(0, Math.max(0, text.lastIndexOf("\n\n")));
  return completeEvents.split("\n\n").map((event) =>
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
export function findResponse(id: number, body: Uint8Array, contentType: string): RpcResponse | null {
  for (const message of readMessages(body, contentType)) {
    if (!isObject(message) || message.id !== id || "method" in message) continue;
    const error = get(message, "error");
    if (isObject(error)) return { error: { code: error.code, message: error.message, data: error.data } };
    if (get(message, "result") !== undefined) return { result: message.result };
  }
  return null;
}

/** The protocol revision that `initialize` requests. A server may answer with an older revision, which is then used. */
export const SESSION_REVISION = "2025-11-25";
/** The protocol revision without sessions, in which each request names its client and its revision. */
export const SESSIONLESS_REVISION = "2026-07-28";

/** Name and version of the client, which `initialize` and the revision without sessions send. */
export interface ClientInfo {
  name: string;
  version: string;
}

export const DEFAULT_CLIENT: ClientInfo = { name: "touchstone", version: "1" };

/** A server without sessions refuses `initialize` with this code and lists the revisions that it supports. */
const UNSUPPORTED_VERSION = -32_022;

export function supportsOnlySessionless(rpc: RpcResponse | null): boolean {
  if (!rpc || !("error" in rpc) || rpc.error.code !== UNSUPPORTED_VERSION) return false;
  const supported = get(rpc.error.data, "supported");
  return Array.isArray(supported) && supported.includes(SESSIONLESS_REVISION);
}

type Params = Record<string, unknown> & { _meta?: Record<string, unknown> };

/** Adds the members of `_meta` that each request must have in the revision without sessions. */
export const addMeta = (params: Params, client: ClientInfo): Params => ({
  ...params,
  _meta: {
    "io.modelcontextprotocol/protocolVersion": SESSIONLESS_REVISION,
    "io.modelcontextprotocol/clientInfo": client,
    "io.modelcontextprotocol/clientCapabilities": {},
    ...params._meta,
  },
});

/** Encodes a header's value: unchanged if possible, else as `=?base64?..?=`, as the protocol revision defines. */
const encodeHeader = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith("=?base64?")
    ? value
    : `=?base64?${Buffer.from(value).toString("base64")}?=`;

/**
 * Headers of a request in the MCP revision {@link SESSIONLESS_REVISION}: the method, and the name of the tool that is
 * called, so that a gateway can route without reading the body.
 */
export function sessionlessHeaders(method: string, params: Params): Record<string, string> {
  const name = params.name;
  return { "mcp-method": method, ...(typeof name === "string" ? { "mcp-name": encodeHeader(name) } : {}) };
}
