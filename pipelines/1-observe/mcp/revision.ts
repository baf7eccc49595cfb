import { get } from "../json.ts";
import type { Rpc } from "./rpc.ts";

/** The revision that a session asks for first. A server may answer with an older one, which is then what we speak. */
export const WITH_SESSIONS = "2025-06-18";
/** The revision without sessions: each request says for itself who asks, and in which revision. */
export const WITHOUT_SESSIONS = "2026-07-28";

export const CLIENT = { name: "touchstone", version: "1" };

/** A server that keeps no sessions refuses `initialize` with this code and names what it does speak. */
const UNSUPPORTED_VERSION = -32_022;

export function speaksOnlyWithoutSessions(rpc: Rpc | null): boolean {
  if (!rpc || !("error" in rpc) || rpc.error.code !== UNSUPPORTED_VERSION) return false;
  const supported = get(rpc.error.data, "supported");
  return Array.isArray(supported) && supported.includes(WITHOUT_SESSIONS);
}

type Params = Record<string, unknown> & { _meta?: Record<string, unknown> };

/** What each request of the revision without sessions carries in its `_meta`. */
export const dressed = (params: Params): Params => ({
  ...params,
  _meta: {
    "io.modelcontextprotocol/protocolVersion": WITHOUT_SESSIONS,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
    ...params._meta,
  },
});

/** A header's value: plain where it can be, else base64 between the marks that the revision names for it. */
const asHeader = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith("=?base64?")
    ? value
    : `=?base64?${Buffer.from(value).toString("base64")}?=`;

/** What each request of that revision carries in its headers: a gateway routes by them without reading the body. */
export function headersOf(method: string, params: Params): Record<string, string> {
  const name = params.name;
  return { "mcp-method": method, ...(typeof name === "string" ? { "mcp-name": asHeader(name) } : {}) };
}
