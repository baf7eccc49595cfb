import type { Egress, EgressResult, Profile } from "../../infra/egress/egress.ts";
import type { Request } from "./input.ts";
import { callTool, type ToolExchange } from "./mcp/call-tool.ts";

/** One exchange with an endpoint: a plain HTTP one, or a tool's call that reads like one. */
export interface Exchanged {
  result: EgressResult & { raw?: Uint8Array };
  /** Only of a tool. */
  mcp?: ToolExchange;
}

export interface How {
  profile: Profile;
  deadlineMs?: number;
  /** The signed payment and the HTTP header it travels in; a tool takes it in its call. */
  payment?: { header: string; value: string };
  signal?: AbortSignal | undefined;
}

/** A whole exchange with a tool without payment, ms: as long as a handshake over HTTP may take. */
const FREE_TOTAL_MS = 20_000;

export async function exchange(egress: Egress, request: Request, how: How): Promise<Exchanged> {
  const { url, method, headers, body, tool } = request;
  const { profile, deadlineMs, payment, signal } = how;
  if (tool) {
    const totalMs = deadlineMs ?? FREE_TOTAL_MS;
    const mcp = await callTool(egress, { url, tool, profile, totalMs, payment: payment?.value, signal });
    return { result: mcp.result, mcp };
  }
  const result = await egress.fetch({
    url,
    method,
    headers: payment ? { ...headers, [payment.header.toLowerCase()]: payment.value } : headers,
    ...(body ? { body } : {}),
    profile,
    ...(deadlineMs === undefined ? {} : { deadlineMs }),
    ...(signal ? { signal } : {}),
  });
  return { result };
}
