import {
  addMeta,
  CLIENT,
  createNotification,
  createRequest,
  headersOf,
  WITH_SESSIONS,
  WITHOUT_SESSIONS,
} from "../../pipelines/1-observe/mcp/rpc.ts";
import { isTemplate } from "../../pipelines/record/template.ts";
import { type HandshakeRequest, readHandshakeRequest } from "../../pipelines/record/volatile.ts";

/** A word of a POSIX shell command line, in single quotes. */
export const shellWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Flags of curl that make our handshake: no globbing, no redirect, 20 s in all. */
const CURL = "curl -gsS -m 20";
/** The command for a handshake, which shows status and headers. */
const HANDSHAKE = `${CURL.replace("-gsS", "-gsSi")} -H 'Accept: application/json'`;
const JSON_TYPE = "-H 'Content-Type: application/json'";

const hasBody = (method: string): boolean => method !== "GET" && method !== "DELETE";

/**
 * The free handshake that we make, as a command for a POSIX shell with curl: with its method, url, body and the headers
 * that matter, without payment; null where no command makes it.
 * @param request of the volatile row (VolatileRow.request); absent where there is none
 */
export function reproduceOf(method: string, url: string, request: string | null | undefined): string | null {
  if (request === "") return null;
  const said = request ? readHandshakeRequest(request) : {};
  if (said === null || (isTemplate(url) && said.url === undefined)) return null;
  if (said.tool !== undefined) return toolCommand(url, said.tool, said.arguments ?? {});
  return handshakeCommand(method, said.url ?? url, said.body);
}

/** @param body absent: an empty JSON object is sent where the method has a body */
function handshakeCommand(method: string, url: string, body: HandshakeRequest["body"]): string {
  const sent = body ?? (hasBody(method) ? "{}" : undefined);
  const data = sent === undefined ? "" : `${JSON_TYPE} -d ${shellWord(sent)} `;
  return `${HANDSHAKE} ${method === "GET" ? "" : `-X ${method} `}${data}${shellWord(url)}`;
}

/** Prints the protocol version in the answer to `initialize`, which may be JSON or a stream of events. */
const VERSION = `sed -n 's/.*"protocolVersion" *: *"\\([A-Za-z0-9_.-]*\\)".*/\\1/p' | head -n 1`;
const SESSION = "grep -i '^mcp-session-id:' | cut -d : -f 2- | tr -d ' '";

/** How an endpoint is called: where the input goes, its members and types, and an example. */
export interface Input {
  in: "query" | "body" | "arguments";
  schema: unknown;
  /** The schema is the listing's, shortened; else it is made of the example. */
  declared: boolean;
  /** null: it is too long to be shown. */
  example: unknown;
  /** The address that the example is sent to. */
  url: string;
}

/** Members of an example that its schema names, and how deep it goes. */
const MOST_MEMBERS = 20;
const DEEPEST = 3;
/** Longest example that is shown, characters of its JSON text. */
const MAX_EXAMPLE = 2_048;

/**
 * The input of our free handshake; null where it sends none, or where it cannot be given.
 * @param url as it is listed
 * @param request as for {@link reproduceOf}
 */
export function inputOf(method: string, url: string, request: string | null | undefined): Input | null {
  const sent = request ? readHandshakeRequest(request) : null;
  if (sent === null) return null;
  const at = sent.url ?? url;
  const input = (place: Input["in"], example: unknown): Input => {
    const isShort = JSON.stringify(example).length <= MAX_EXAMPLE;
    const schema = sent.schema ?? schemaOf(example, DEEPEST);
    return { in: place, schema, declared: sent.schema !== undefined, example: isShort ? example : null, url: at };
  };
  if (sent.tool !== undefined) return input("arguments", sent.arguments ?? {});
  if (sent.body !== undefined) return input("body", jsonOr(sent.body));
  const query = Object.fromEntries(new URL(at).searchParams);
  if (Object.keys(query).length > 0) return input("query", query);
  return sent.schema ? input(hasBody(method) ? "body" : "query", {}) : null;
}

/** The value of a JSON text; of another text the text itself. */
function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** JSON Schema of one value: types and members, without what a single example cannot tell. */
function schemaOf(value: unknown, depth: number): object {
  if (value === null) return { type: "null" };
  if (Array.isArray(value))
    return { type: "array", ...(value.length > 0 && depth > 0 ? { items: schemaOf(value[0], depth - 1) } : {}) };
  if (typeof value !== "object") return { type: Number.isInteger(value) ? "integer" : typeof value };
  if (depth === 0) return { type: "object" };
  const members = Object.entries(value).slice(0, MOST_MEMBERS);
  return {
    type: "object",
    properties: Object.fromEntries(members.map(([name, one]) => [name, schemaOf(one, depth - 1)])),
  };
}

/**
 * A call of a tool as we make it (MCP, streamable HTTP): `initialize`, the notification that follows it, `tools/call`.
 * A server of the revision without sessions refuses `initialize` and gets the call alone. Request ids are those that we
 * use; `tools/list`, which is between them, is left out, since it asks for no payment.
 */
function toolCommand(url: string, tool: string, args: Record<string, unknown>): string {
  const word = (bytes: Uint8Array): string => shellWord(Buffer.from(bytes).toString("utf8"));
  const hello = createRequest(0, "initialize", {
    protocolVersion: WITH_SESSIONS,
    capabilities: {},
    clientInfo: CLIENT,
  });
  const params = { name: tool, arguments: args };
  const alone = { "mcp-protocol-version": WITHOUT_SESSIONS, ...headersOf("tools/call", params) };
  const headers = `-H 'Accept: application/json, text/event-stream' ${JSON_TYPE}`;
  // curl does not send a header without a value, so a server that gives no session gets none.
  const session = `-H "Mcp-Session-Id: $s" -H "Mcp-Protocol-Version: $v"`;
  const named = Object.entries(alone).map(([name, value]) => `-H ${shellWord(`${name}: ${value}`)}`);
  return [
    `(m() { ${CURL} ${headers} "$@" ${shellWord(url)}; }`,
    `w=$(m -i -d ${word(hello)} | tr -d '\r')`,
    `s=$(printf '%s\n' "$w" | ${SESSION})`,
    `v=$(printf '%s\n' "$w" | ${VERSION})`,
    `if [ -n "$v" ]; then m ${session} -d ${word(createNotification("notifications/initialized"))}`,
    `m -i ${session} -d ${word(createRequest(2, "tools/call", params))}`,
    `else m -i ${named.join(" ")} -d ${word(createRequest(2, "tools/call", addMeta(params, CLIENT)))}; fi)`,
  ].join("; ");
}
