import {
  type CallToolResult,
  createMcpHandler,
  localhostAllowedHostnames,
  McpServer,
  type StandardSchemaWithJSON,
  validateHostHeader,
  validateOriginHeader,
} from "@modelcontextprotocol/server";
import { FastResponse } from "srvx";
import { z } from "zod";
import type { Service } from "../context.ts";
import { ABOUT } from "../discovery/about.ts";
import type { Limiter } from "../http/limits.ts";
import { Problem, problemDocumentOf } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import { readJson } from "../http/request.ts";
import type { Operation } from "../operations/operation.ts";

/** One tool of the MCP server. */
export interface Tool {
  name: string;
  title: string;
  description: string;
  input: z.ZodType;
  output: z.ZodType;
  /** Returns the rate limit of this tool, besides the limit that every message counts against; null for none. */
  limiter: (service: Service) => Limiter | null;
  /** Runs the tool. @throws Problem, also by rejecting */
  run(service: Service, input: unknown, client: string): object | Promise<object>;
}

/**
 * Returns the tools: those operations that are marked as tools, in the order of the table, with the rate limits of the
 * operations.
 */
export function toolsOf(operations: readonly Operation[]): Tool[] {
  return operations.flatMap(({ tool, query, body, answer, summary, limiter }) => {
    const input = query ?? body;
    return tool && input && answer ? [{ description: summary, ...tool, input, output: answer, limiter }] : [];
  });
}

/** What a tool call needs: the service, the key of the client that calls, and all tools. */
export interface McpContext {
  service: Service;
  client: string;
  tools: readonly Tool[];
}

const INSTRUCTIONS =
  "Before you pay an HTTP endpoint that answered 402, ask check_grade with its url and the payTo of its 402. UNRATED means unknown, not bad; F means it was paid and failed. Answers of check_grade are signed and can be kept as evidence.";

/** Tools only read, and the same arguments give the same result until the record changes. */
const READ_ONLY_ANNOTATIONS = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
};

/**
 * Converts an error into a tool result that holds the problem document. Of an internal error it shows only that there
 * was one.
 */
function toErrorResult(error: unknown, tool: Tool, { service }: McpContext): CallToolResult {
  const problem = error instanceof Problem ? error : new Problem("internal", "the question could not be answered");
  if (problem.code === "internal") service.logger.error({ err: error, operation: tool.name }, "a tool failed");
  return {
    isError: true,
    content: [{ type: "text", text: JSON.stringify(problemDocumentOf(problem, `/mcp#${tool.name}`)) }],
  };
}

/**
 * Counts a tool call against the tool's own limit. Before this, every message was counted against the limit on
 * checks.
 * @throws Problem too_many_requests
 */
function countToolCall(tool: Tool, { service, client }: McpContext): void {
  const limiter = tool.limiter(service);
  if (limiter === null || limiter === service.checkLimiter) return;
  const decision = limiter.take(client);
  if (decision.ok) return;
  const { name, quota, windowS } = limiter.limit;
  throw new Problem("too_many_requests", `at most ${quota} ${name} in ${windowS} s; again in ${decision.resetS} s`);
}

async function callTool(tool: Tool, input: unknown, context: McpContext): Promise<CallToolResult> {
  try {
    const { service, client } = context;
    if (service.follower.viewAgeMs === null) throw new Problem("not_ready", "the record has not been read yet");
    countToolCall(tool, context);
    const answer = await tool.run(service, input, client);
    return { structuredContent: { ...answer }, content: [{ type: "text", text: JSON.stringify(answer) }] };
  } catch (error) {
    return toErrorResult(error, tool, context);
  }
}

/**
 * Keywords that are removed from the tools' schemas, because converters in common use reject them:
 * `additionalProperties` as a schema (OpenAI's strict mode) or as a boolean (Gemini), and rules that involve several
 * members. The server still enforces these rules when a tool is called.
 */
const REMOVED_KEYWORDS = [
  "additionalProperties",
  "propertyNames",
  "not",
  "if",
  "then",
  "else",
  "dependentRequired",
] as const;

/** Cache of JSON Schemas, since the SDK asks for them at every exchange. */
const schemaCache = new WeakMap<z.ZodType, Record<string, unknown>>();

/** Returns the JSON Schema of a tool's arguments or result without the keywords of {@link REMOVED_KEYWORDS}. */
function jsonSchemaOf(schema: z.ZodType): Record<string, unknown> {
  const cached = schemaCache.get(schema);
  if (cached) return cached;
  const json = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    override: ({ jsonSchema }) => {
      for (const word of REMOVED_KEYWORDS) delete jsonSchema[word];
    },
  });
  schemaCache.set(schema, json);
  return json;
}

/**
 * Removes members that are null from the arguments and from objects in their lists, since callers send null for what
 * they leave out. Null in deeper objects is kept: there it may be a value of the caller's own input.
 * @param examinesLists true: objects in lists lose their null members too. false: lists stay as they are
 */
function withoutNulls(input: unknown, examinesLists = true): unknown {
  if (typeof input !== "object" || input === null || Array.isArray(input)) return input;
  const members = Object.entries(input).filter(([, value]) => value !== null);
  const cleanItems = (value: unknown) =>
    examinesLists && Array.isArray(value) ? value.map((item) => withoutNulls(item, false)) : value;
  return Object.fromEntries(members.map(([name, value]) => [name, cleanItems(value)]));
}

/**
 * Wraps a schema in the form that the SDK requires (Standard Schema). The SDK's validation passes every value through
 * `convert`; the arguments are validated later by the tool itself, whose problem document lists each wrong member.
 */
function toStandardSchema(schema: z.ZodType, convert: (value: unknown) => unknown): StandardSchemaWithJSON {
  const json = () => jsonSchemaOf(schema);
  const validate = (value: unknown) => ({ value: convert(value) });
  return { "~standard": { version: 1, vendor: "touchstone", jsonSchema: { input: json, output: json }, validate } };
}

function createServer(context: McpContext): McpServer {
  const server = new McpServer(
    { name: "touchstone", title: ABOUT.name, version: ABOUT.version },
    { instructions: INSTRUCTIONS },
  );
  for (const tool of context.tools) {
    const { name, title, description, input, output } = tool;
    const config = {
      title,
      description,
      inputSchema: toStandardSchema(input, withoutNulls),
      outputSchema: toStandardSchema(output, (answer) => answer),
      annotations: { title, ...READ_ONLY_ANNOTATIONS },
    };
    server.registerTool(name, config, (args) => callTool(tool, args, context));
  }
  return server;
}

/**
 * Refuses a request that was sent by a page of another origin, or to another host name (DNS rebinding: a hostile page
 * whose name resolves to this machine). Checks Host and Origin.
 * @throws Problem forbidden
 */
function refuseForeign(headers: Headers, baseUrl: string): void {
  const ownHosts = [new URL(baseUrl).hostname, ...localhostAllowedHostnames()];
  const host = validateHostHeader(headers.get("host"), ownHosts);
  if (!host.ok) throw new Problem("forbidden", host.message);
  const origin = validateOriginHeader(headers.get("origin"), ownHosts);
  if (!origin.ok) throw new Problem("forbidden", origin.message);
}

/**
 * Answers one message, whether its protocol revision has sessions or not. It creates a server for this message only.
 * Nothing needs a longer life: the tools never change while the process runs, so there are no notifications to
 * subscribe to.
 */
function answerMessage(context: McpContext, headers: Headers, message: unknown): Promise<Response> {
  const handler = createMcpHandler(() => createServer(context), {
    maxSubscriptions: 0,
    keepAliveMs: 0,
    onerror: (error) => context.service.logger.debug({ err: error }, "an MCP message was refused"),
  });
  const request = new Request(`${context.service.baseUrl}/mcp`, { method: "POST", headers });
  return handler.fetch(request, { parsedBody: message });
}

/** Largest number of bytes of a message: room for 200 dependencies with urls of the greatest length, escaped. */
const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Largest number of messages of a batch (batches exist in revision 2025-03-26). */
const MAX_BATCH_MESSAGES = 20;

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
    const message = await readJson(request.body, MAX_MESSAGE_BYTES);
    if (Array.isArray(message)) {
      if (message.length > MAX_BATCH_MESSAGES)
        throw new Problem("bad_request", `at most ${MAX_BATCH_MESSAGES} messages in one batch`);
      // The request itself already took the token of one message.
      service.checkLimiter.charge(client, Math.max(0, message.length - 1));
    }
    const answer = await answerMessage({ service, client, tools: toolsOf(operations) }, request.headers, message);
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
