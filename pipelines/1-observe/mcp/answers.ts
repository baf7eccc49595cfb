import type { EgressResult } from "../../../infra/egress/egress.ts";
import { demandsPayment, findDemandsInError, findDemandsInResult, type ToolDemands } from "../../record/terms/tools.ts";
import { get, isObject, parseJson, show, text, valueIfKeepable } from "../json.ts";
import { sampleValue } from "../probe/synthetic.ts";
import { findResponse, type RpcResponse, supportsOnlySessionless } from "./rpc.ts";

/**
 * An MCP tool's answer converted to an HTTP answer, so that the code that evaluates endpoints evaluates tools too.
 * Status 402: payment is required; 200: the tool's result; 500: an error of the tool or the server; 404: no such tool;
 * 502: no answer to our request. An exchange that failed before an answer keeps its own outcome.
 */
export interface ToolAnswer {
  /** `raw`: the bytes as received; the record has their hash. */
  result: EgressResult & { raw?: Uint8Array };
  /** An explanation if the status alone does not explain the answer. */
  says?: string;
  /**
   * Can the terms be paid with a payment in the call's `_meta`? False if the HTTP server in front of the tools asks for
   * payment itself.
   */
  isPayable: boolean;
  /** Set for a tool's x402 demand: the form in which its seller takes a payment, as far as the demand tells. */
  paymentForm?: PaymentForm;
}

/**
 * Form of the signed payment in the `_meta` of a `tools/call`. `object`: the payment itself, as x402's MCP transport
 * says. `string`: base64 of its JSON, as the servers of cloudflare/agents (packages/agents/src/mcp/x402.ts) and of
 * x402-mcp take it. They answer anything else with their demand.
 */
export type PaymentForm = "object" | "string";

/**
 * Writes the mpp challenges of a tool as a `WWW-Authenticate` header, so that one function reads the challenges of
 * tools and of HTTP endpoints.
 */
function challengeHeader(challenges: readonly unknown[]): string | undefined {
  const lines = challenges.slice(0, 16).flatMap((challenge) => {
    if (!isObject(challenge)) return [];
    const params = Object.entries(challenge).flatMap(([name, value]) => {
      if (!/^[A-Za-z]{1,20}$/.test(name)) return [];
      const encoded = name === "request" && isObject(value) ? Buffer.from(show(value)).toString("base64url") : value;
      return typeof encoded === "string" ? [`${name}="${encoded.replace(/["\\]/g, "\\$&")}"`] : [];
    });
    return [`Payment ${params.join(", ")}`];
  });
  return lines.length > 0 ? lines.join(", ") : undefined;
}

type Answered = Extract<EgressResult, { outcome: "answered" }>;

function createAnswer(http: EgressResult, status: number, body: Uint8Array, headers: Record<string, string> = {}) {
  const { totalMs } = http;
  const raw = http.body ?? new Uint8Array();
  const times = { headersMs: http.headersMs ?? totalMs, totalMs };
  const { remoteAddress, url } = http.outcome === "answered" ? http : { remoteAddress: "", url: "" };
  const answered: Answered = {
    outcome: "answered",
    status,
    headers: { "content-type": "application/json", ...headers },
    body,
    ...times,
    remoteAddress,
    url,
  };
  return { ...answered, raw };
}

const toJsonBytes = (value: unknown): Uint8Array => Buffer.from(show(value));

/**
 * Converts a tool's demand for payment to a 402 with the terms in the headers, as in x402 version 2; null if there are
 * no terms.
 */
function createDemand(
  http: EgressResult,
  demands: ToolDemands,
  paymentForm: PaymentForm = "object",
): ToolAnswer | null {
  const [terms] = demands.terms;
  const challenges = challengeHeader(demands.challenges);
  if (terms === undefined && challenges === undefined) return null;
  const headers: Record<string, string> = {};
  if (terms !== undefined) headers["payment-required"] = Buffer.from(show(terms)).toString("base64");
  if (challenges !== undefined) headers["www-authenticate"] = challenges;
  const result = createAnswer(http, 402, toJsonBytes(terms ?? {}), headers);
  return { result, isPayable: true, ...(terms === undefined ? {} : { paymentForm }) };
}

/**
 * Returns the form in which the seller of this demand takes a payment. cloudflare/agents puts its terms into the member
 * `x402/error` and not into the structured content, in which x402's transport wants them. The demand of x402-mcp looks
 * like the transport's.
 */
function paymentFormOf(result: unknown): PaymentForm {
  const isCloudflares = isObject(get(result, "_meta", "x402/error")) && !isObject(get(result, "structuredContent"));
  return isCloudflares ? "string" : "object";
}

/**
 * Returns the bytes of the tool's result: its structured content, else the text if it is the only content, else the
 * content as JSON.
 */
function resultBytes(result: unknown): Uint8Array {
  const structured = get(result, "structuredContent");
  if (structured !== undefined && structured !== null) return toJsonBytes(structured);
  const content = get(result, "content");
  const singleText = Array.isArray(content) && content.length === 1 ? get(content[0], "text") : undefined;
  if (typeof singleText === "string") return Buffer.from(singleText);
  return Array.isArray(content) && content.length > 0 ? toJsonBytes(content) : new Uint8Array();
}

/** Reads the response to a `tools/call`, or to an `initialize` that opened no session. */
function readAnswer({ http, rpc }: { http: EgressResult; rpc: RpcResponse | null }): ToolAnswer {
  const isPaywall = http.outcome === "answered" && http.status === 402 && rpc === null;
  if (isPaywall)
    return { result: http, isPayable: false, says: "the server in front of the tools asks for payment itself" };
  if (rpc === null) {
    if (http.outcome !== "answered" || http.status < 200 || http.status > 299)
      return { result: http, isPayable: false };
    const says = "no answer to our question in what came back";
    return { result: createAnswer(http, 502, http.body), isPayable: false, says };
  }
  if ("error" in rpc) {
    const { code, message, data } = rpc.error;
    const demand = createDemand(http, findDemandsInError(data));
    if (demand) return demand;
    const says = `JSON-RPC error ${show(code)}: ${text(message, 500) ?? ""}`;
    return { result: createAnswer(http, 500, toJsonBytes({ error: rpc.error })), isPayable: false, says };
  }
  const { result } = rpc;
  const demands = findDemandsInResult(result);
  const demand = demandsPayment(result, demands) ? createDemand(http, demands, paymentFormOf(result)) : null;
  if (demand) return demand;
  const hasFailed = get(result, "isError") === true;
  if (!hasFailed)
    return { result: createAnswer(http, 200, resultBytes(result), createHttpHeaders(result)), isPayable: true };
  const failureText = Buffer.from(resultBytes(result)).toString("utf8");
  return {
    result: createAnswer(http, 500, toJsonBytes({ error: failureText })),
    isPayable: true,
    says: `the tool failed: ${failureText.slice(0, 500)}`,
  };
}

/** Makes the headers that an HTTP answer would have: the content type, and the seller's receipt of the settlement. */
function createHttpHeaders(result: unknown): Record<string, string> {
  const receipt = get(result, "_meta", "x402/payment-response");
  return {
    ...(parseJson(resultBytes(result)) === undefined ? { "content-type": "text/plain" } : {}),
    ...(receipt === undefined ? {} : { "payment-response": Buffer.from(show(receipt)).toString("base64") }),
  };
}

/** Makes the answer for a response that could not be read within bounds. It counts as no answer (502). */
export const createUnreadableAnswer = (http: EgressResult, says: string): ToolAnswer => ({
  result: http.outcome === "answered" ? createAnswer(http, 502, http.body) : http,
  isPayable: false,
  says: `the answer could not be read: ${says}`,
});

/** Makes the answer for a tool that is not in `tools/list` and so was not called (404). */
export const createAbsentAnswer = (name: string): ToolAnswer => {
  const noExchange = { outcome: "timeout" as const, says: "", totalMs: 0, sent: true };
  return {
    result: createAnswer(noExchange, 404, new Uint8Array()),
    isPayable: false,
    says: `tools/list does not name ${name}`,
  };
};

/**
 * The id of one request of ours, and the result of its HTTP exchange. It is plain data, since a worker thread reads it.
 */
export interface Reply {
  id: number;
  http: EgressResult;
}

/** The server's answer to `initialize`. */
export interface InitializeAnswer {
  /** True if the body holds a JSON-RPC response to our request. */
  hasRpcResponse: boolean;
  /** Does the server support only the protocol revision without sessions? */
  supportsOnlySessionless: boolean;
  /** The protocol revision that the server chose; undefined if it opened no session. */
  version: string | undefined;
}

/** The part of one page of `tools/list` that is about one tool. */
export interface ListPage {
  tool: ListedTool | null;
  /** Cursor of the next page; undefined on the last page. */
  nextCursor: string | undefined;
}

export interface ListedTool {
  /** Schema of the tool's input; undefined if there is none, or the record cannot keep it. */
  inputSchema: unknown;
  /** Schema of the tool's output; undefined if there is none, or the record cannot keep it. */
  outputSchema: unknown;
  /** Arguments made from the input schema; null if no object can be made from it. */
  sampleArguments: Record<string, unknown> | null;
}

// Finds the response to our request, also in a stream that was cut off, which may hold the whole response.
const findRpc = ({ id, http }: Reply): RpcResponse | null =>
  http.body ? findResponse(id, http.body, http.headers?.["content-type"] ?? "") : null;

const resultOf = (rpc: RpcResponse | null): unknown => (rpc && "result" in rpc ? rpc.result : undefined);

export function readInitializeAnswer(reply: Reply): InitializeAnswer {
  const rpc = findRpc(reply);
  const version = text(get(resultOf(rpc), "protocolVersion"), 40);
  return { hasRpcResponse: rpc !== null, supportsOnlySessionless: supportsOnlySessionless(rpc), version };
}

/** Reads one page of `tools/list`; null when the response holds no list. @param tool name of the tool to look for */
export function readListPage({ tool, ...reply }: Reply & { tool: string }): ListPage | null {
  const result = resultOf(findRpc(reply));
  const tools = get(result, "tools");
  if (!Array.isArray(tools)) return null;
  const found = tools.find((one) => get(one, "name") === tool);
  if (!isObject(found)) return { tool: null, nextCursor: text(get(result, "nextCursor"), 4096) };
  const { inputSchema, outputSchema } = found;
  const sampleArguments = isObject(inputSchema) ? valueIfKeepable(sampleValue(inputSchema)) : null;
  const keptSchemas = { inputSchema: valueIfKeepable(inputSchema), outputSchema: valueIfKeepable(outputSchema) };
  return {
    tool: { ...keptSchemas, sampleArguments: isObject(sampleArguments) ? sampleArguments : null },
    nextCursor: undefined,
  };
}

/** Reads the response to a `tools/call`, or to an `initialize` that opened no session. */
export const readReply = (reply: Reply): ToolAnswer => readAnswer({ http: reply.http, rpc: findRpc(reply) });
