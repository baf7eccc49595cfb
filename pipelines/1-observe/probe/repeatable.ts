import { HANDSHAKE_REQUEST_MAX, type HandshakeRequest } from "../../record/volatile.ts";
import { requestOf } from "./request.ts";
import { listedAs, type Said } from "./unplanned.ts";

/**
 * What our free handshake of an endpoint has beside its method and url, for whoever makes the same one (VolatileRow.request):
 * null when there is nothing, "" when it cannot be said (too long, or a tool's list decides what the tool is called with).
 */
export function repeatable(said: Said): string | null {
  const { request } = requestOf(listedAs(said), null, null);
  const { url, body, tool } = request;
  if (tool?.blind) return "";
  const told: HandshakeRequest = tool
    ? { tool: tool.name, arguments: tool.arguments }
    : {
        ...(url === said.url ? {} : { url }),
        ...(body && Buffer.from(body).toString("utf8") !== "{}" ? { body: Buffer.from(body).toString("utf8") } : {}),
      };
  const text = JSON.stringify(told);
  if (text === "{}") return null;
  return text.length > HANDSHAKE_REQUEST_MAX ? "" : text;
}
