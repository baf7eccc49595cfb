import {
  addMeta,
  createNotification,
  createRequest,
  DEFAULT_CLIENT,
  SESSION_REVISION,
  SESSIONLESS_REVISION,
  sessionlessHeaders,
} from "../../pipelines/1-observe/mcp/rpc.ts";
import { isTemplate } from "../../pipelines/record/template.ts";
import { type HandshakeRequest, readHandshakeRequest } from "../../pipelines/record/volatile.ts";

/** Quotes a text as one word of a POSIX shell command line. */
export const shellWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Options of curl that match our probe: no globbing, no redirects, 20 s in all. */
const CURL = "curl -gsS -m 20";
/** The command for a probe, which shows status and headers. */
const PROBE_COMMAND = `${CURL.replace("-gsS", "-gsSi")} -H 'Accept: application/json'`;
const JSON_TYPE = "-H 'Content-Type: application/json'";

const hasBody = (method: string): boolean => method !== "GET" && method !== "DELETE";

/**
 * Returns our free probe as a command for a POSIX shell with curl: method, url, body and the relevant headers,
 * without payment. Null when no command can make it.
 * @param request VolatileRow.request, our request as JSON text; absent: it has only method and url; "": the text is
 * too long
 */
export function reproduceOf(method: string, url: string, request: string | null | undefined): string | null {
  if (request === "") return null;
  const probeRequest = request ? readHandshakeRequest(request) : {};
  if (probeRequest === null || (isTemplate(url) && probeRequest.url === undefined)) return null;
  if (probeRequest.tool !== undefined) return toolCommand(url, probeRequest.tool, probeRequest.arguments ?? {});
  return handshakeCommand(method, probeRequest.url ?? url, probeRequest.body);
}

/**
 * Returns the command for a probe of an endpoint that is no tool.
 * @param body when absent, an empty JSON object is sent if the method has a body
 */
function handshakeCommand(method: string, url: string, body: HandshakeRequest["body"]): string {
  const sentBody = body ?? (hasBody(method) ? "{}" : undefined);
  const data = sentBody === undefined ? "" : `${JSON_TYPE} -d ${shellWord(sentBody)} `;
  return `${PROBE_COMMAND} ${method === "GET" ? "" : `-X ${method} `}${data}${shellWord(url)}`;
}

/**
 * Shell commands that print the protocol version in the answer to `initialize`, which may be JSON or a stream of
 * events.
 */
const PRINT_VERSION = `sed -n 's/.*"protocolVersion" *: *"\\([A-Za-z0-9_.-]*\\)".*/\\1/p' | head -n 1`;
const PRINT_SESSION = "grep -i '^mcp-session-id:' | cut -d : -f 2- | tr -d ' '";

/** How an endpoint is called: where the input goes, its members and their types, and an example. */
export interface Input {
  in: "query" | "body" | "arguments";
  schema: unknown;
  /** True: the schema is the listing's, shortened. False: it is made from the example. */
  declared: boolean;
  /** Null when the example is too long to be shown. */
  example: unknown;
  /** Address to which the example is sent. */
  url: string;
}

/** Largest number of properties, of each object, in a schema that is made from an example. */
const MAX_MEMBERS = 20;
/** Largest number of levels in a schema that is made from an example. */
const MAX_SCHEMA_DEPTH = 3;
/** Longest example that is shown, characters of its JSON text. */
const MAX_EXAMPLE_LENGTH = 2_048;

/**
 * Returns the input of our free probe; null when the probe sends no input, or when its request is not known.
 * @param url as listed
 * @param request as for {@link reproduceOf}
 */
export function inputOf(method: string, url: string, request: string | null | undefined): Input | null {
  const probeRequest = request ? readHandshakeRequest(request) : null;
  if (probeRequest === null) return null;
  const targetUrl = probeRequest.url ?? url;
  const input = (place: Input["in"], example: unknown): Input => {
    const isShort = JSON.stringify(example).length <= MAX_EXAMPLE_LENGTH;
    const schema = probeRequest.schema ?? schemaOf(example, MAX_SCHEMA_DEPTH);
    return {
      in: place,
      schema,
      declared: probeRequest.schema !== undefined,
      example: isShort ? example : null,
      url: targetUrl,
    };
  };
  if (probeRequest.tool !== undefined) return input("arguments", probeRequest.arguments ?? {});
  if (probeRequest.body !== undefined) return input("body", jsonOrText(probeRequest.body));
  const query = Object.fromEntries(new URL(targetUrl).searchParams);
  if (Object.keys(query).length > 0) return input("query", query);
  return probeRequest.schema ? input(hasBody(method) ? "body" : "query", {}) : null;
}

/** Parses a JSON text; returns any other text unchanged. */
function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * Returns a JSON Schema for one value: types and properties only, since a single example shows no bounds and no
 * optional properties.
 */
function schemaOf(value: unknown, depth: number): object {
  if (value === null) return { type: "null" };
  if (Array.isArray(value))
    return { type: "array", ...(value.length > 0 && depth > 0 ? { items: schemaOf(value[0], depth - 1) } : {}) };
  if (typeof value !== "object") return { type: Number.isInteger(value) ? "integer" : typeof value };
  if (depth === 0) return { type: "object" };
  const members = Object.entries(value).slice(0, MAX_MEMBERS);
  return {
    type: "object",
    properties: Object.fromEntries(members.map(([name, one]) => [name, schemaOf(one, depth - 1)])),
  };
}

/**
 * Returns the command for a tool call as we make it (MCP, streamable HTTP): `initialize`, the notification after it,
 * and `tools/call`. A server of the MCP revision without sessions refuses `initialize` and gets the call alone. The
 * request ids are ours; `tools/list`, which we send in between, is left out, since it asks for no payment.
 */
function toolCommand(url: string, tool: string, args: Record<string, unknown>): string {
  const toShellWord = (bytes: Uint8Array): string => shellWord(Buffer.from(bytes).toString("utf8"));
  const initializeRequest = createRequest(0, "initialize", {
    protocolVersion: SESSION_REVISION,
    capabilities: {},
    clientInfo: DEFAULT_CLIENT,
  });
  const params = { name: tool, arguments: args };
  const sessionlessCallHeaders = {
    "mcp-protocol-version": SESSIONLESS_REVISION,
    ...sessionlessHeaders("tools/call", params),
  };
  const headers = `-H 'Accept: application/json, text/event-stream' ${JSON_TYPE}`;
  // curl does not send a header without a value, so a server that gives no session gets none.
  const sessionOptions = `-H "Mcp-Session-Id: $s" -H "Mcp-Protocol-Version: $v"`;
  const sessionlessOptions = Object.entries(sessionlessCallHeaders).map(
    ([name, value]) => `-H ${shellWord(`${name}: ${value}`)}`,
  );
  return [
    `(m() { ${CURL} ${headers} "$@" ${shellWord(url)}; }`,
    `w=$(m -i -d ${toShellWord(initializeRequest)} | tr -d '\r')`,
    `s=$(printf '%s\n' "$w" | ${PRINT_SESSION})`,
    `v=$(printf '%s\n' "$w" | ${PRINT_VERSION})`,
    `if [ -n "$v" ]; then m ${sessionOptions} -d ${toShellWord(createNotification("notifications/initialized"))}`,
    `m -i ${sessionOptions} -d ${toShellWord(createRequest(2, "tools/call", params))}`,
    `else m -i ${sessionlessOptions.join(" ")} -d ${toShellWord(createRequest(2, "tools/call", addMeta(params, DEFAULT_CLIENT)))}; fi)`,
  ].join("; ");
}
