import { z } from "zod";
import type { Service } from "../context.ts";
import {
  makeAgentCard,
  makeAgentRegistration,
  makeLlmsText,
  makeMcpServerFile,
  makeX402Manifest,
} from "../discovery/cards.ts";
import { openapiOf } from "../discovery/openapi.ts";
import { Problem } from "../http/problem.ts";
import { etagOfText, JSON_TYPE, reply, TEXT_TYPE } from "../http/reply.ts";
import { PROVE_MODULE } from "../pages/prove.ts";
import { AgentCard, AgentRegistration, McpServerFile, OpenApiDocument, X402Manifest } from "../schemas/discovery.ts";
import type { Operation } from "./operation.ts";

const NOT_BUILT = "it was not built: the service was started from its sources (npm run build)";
const CACHE_FIVE_MINUTES = "public, max-age=300";

/**
 * Creates the operation of a document about the service. The document is made at the first request, from the
 * operations that the service offers, and made again when it offers others. An operation is not offered while it would
 * answer 503 because its data was not imported yet.
 */
function documentOperation(
  row: Pick<Operation, "id" | "path" | "summary" | "answer"> & { type?: string },
  make: (operations: readonly Operation[], service: Service) => string,
): Operation {
  const cache = new WeakMap<Service, { offeredIds: string; text: string; etag: string }>();
  return {
    type: JSON_TYPE,
    ...row,
    tag: "service",
    cache: CACHE_FIVE_MINUTES,
    limiter: (service) => service.readLimiter,
    run({ service, operations, request, limitHeaders }) {
      const offered = operations.filter((one) => one.isOffered?.(service) ?? true);
      const offeredIds = offered.map(({ id }) => id).join();
      let cached = cache.get(service);
      if (cached?.offeredIds !== offeredIds) {
        const text = make(offered, service);
        cached = { offeredIds, text, etag: etagOfText(text) };
        cache.set(service, cached);
      }
      const { text, etag } = cached;
      return reply(request, text, {
        type: row.type ?? JSON_TYPE,
        cache: CACHE_FIVE_MINUTES,
        etag,
        headers: limitHeaders,
      });
    },
  };
}

/** Creates the operation of a document about the service in JSON. */
const jsonDocumentOperation = (
  row: Pick<Operation, "id" | "path" | "summary" | "answer">,
  make: (operations: readonly Operation[], service: Service) => object,
): Operation => documentOperation(row, (operations, service) => JSON.stringify(make(operations, service)));

/** The service's icon: a stone with the streak of gold that was rubbed on it. */
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" role="img"><title>Touchstone</title><path d="M8 40 18 14 46 8 58 30 48 54 20 56z" fill="#33373d"/><path d="M20 42 44 22" stroke="#d9a521" stroke-width="7" stroke-linecap="round"/></svg>';

/** Descriptions of the service for programs. */
export const DISCOVERY: readonly Operation[] = [
  jsonDocumentOperation(
    {
      id: "agentCard",
      path: "/.well-known/agent-card.json",
      summary: "A2A agent card, signed by the answers key",
      answer: AgentCard,
    },
    makeAgentCard,
  ),
  jsonDocumentOperation(
    {
      id: "agentRegistration",
      path: "/.well-known/agent-registration.json",
      summary: "ERC-8004 registration file",
      answer: AgentRegistration,
    },
    makeAgentRegistration,
  ),
  jsonDocumentOperation(
    {
      id: "x402Manifest",
      path: "/.well-known/x402",
      summary: "Operations that cost something, with their payment terms",
      answer: X402Manifest,
    },
    makeX402Manifest,
  ),
  jsonDocumentOperation(
    {
      id: "mcpServerFile",
      path: "/.well-known/mcp/server.json",
      summary: "Where the MCP server is: a server.json of the MCP registry",
      answer: McpServerFile,
    },
    makeMcpServerFile,
  ),
  jsonDocumentOperation(
    { id: "openapi", path: "/openapi.json", summary: "This description: OpenAPI 3.1", answer: OpenApiDocument },
    openapiOf,
  ),
  documentOperation(
    {
      id: "llms",
      path: "/llms.txt",
      summary: "What is here, for a model that reads before it asks",
      answer: z.string(),
      type: TEXT_TYPE,
    },
    makeLlmsText,
  ),
  documentOperation(
    { id: "icon", path: "/icon.svg", summary: "The icon", answer: z.string(), type: "image/svg+xml" },
    () => ICON,
  ),
  documentOperation(
    {
      id: "clientLibrary",
      path: "/client.mjs",
      summary: "The client library as one file; /docs/client names its hash",
      answer: z.string(),
      type: "text/javascript; charset=utf-8",
    },
    (_operations, { clientFile }) => {
      if (clientFile) return clientFile.text;
      throw new Problem("not_found", NOT_BUILT);
    },
  ),
  documentOperation(
    {
      id: "proveModule",
      path: PROVE_MODULE,
      summary: "The proof of a card for a page, as one file; /docs/card-bundle names its hash",
      answer: z.string(),
      type: "text/javascript; charset=utf-8",
    },
    (_operations, { proveFile }) => {
      if (proveFile) return proveFile.text;
      throw new Problem("not_found", NOT_BUILT);
    },
  ),
];
