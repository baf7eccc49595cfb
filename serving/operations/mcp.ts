import { FastResponse } from "srvx";
import { Problem } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import { jsonBody } from "../http/request.ts";
import { mcpAnswer, refuseForeign } from "../mcp/server.ts";
import { toolsOf } from "../mcp/tools.ts";
import type { Operation } from "./operation.ts";

/** Longest message: 200 dependencies of the longest urls, escaped. */
const MAX_MESSAGE = 1024 * 1024;
/** Messages of one batch, as the revision of 2025-03-26 has them. */
const MAX_BATCH = 20;

/** POST /mcp: the MCP server over HTTP, without sessions. */
export const MCP: Operation = {
  id: "mcp",
  method: "POST",
  path: "/mcp",
  summary: "MCP server over HTTP",
  type: JSON_TYPE,
  limiter: (service) => service.checkLimiter,
  async run({ service, request, client, limitHeaders, operations }) {
    refuseForeign(request.headers, service.baseUrl);
    const message = await jsonBody(request.body, MAX_MESSAGE);
    if (Array.isArray(message)) {
      if (message.length > MAX_BATCH) throw new Problem("bad_request", `at most ${MAX_BATCH} messages in one batch`);
      // The request paid for one of them.
      service.checkLimiter.charge(client, Math.max(0, message.length - 1));
    }
    const answer = await mcpAnswer({ service, client, tools: toolsOf(operations) }, request.headers, message);
    return new FastResponse(answer.body, {
      status: answer.status,
      headers: {
        ...Object.fromEntries(answer.headers),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        ...limitHeaders,
      },
    });
  },
};
