import type { EgressResult } from "../../../infra/egress/egress.ts";
import { findInError, findInResult, isDemand, type Places } from "../../record/terms/tools.ts";
import { get, isObject, parseJson, show, text, valueIfKeepable } from "../json.ts";
import { sampleValue } from "../probe/synthetic.ts";
import { findResponse, type Rpc, speaksOnlyWithoutSessions } from "./rpc.ts";

/**
 * An MCP tool's answer converted to an HTTP answer, so that the code that evaluates endpoints evaluates tools too.
 * Status 402: payment is required; 200: the tool's result; 500: an error of the tool or the server; 404: no such tool;
 * 502: no answer to our request. An exchange that failed before an answer keeps its own outcome.
 */
export interface ToolAnswer {
  /** `raw`: the bytes as received; the record has their hash. */
  result: EgressResult & { raw?: Uint8Array };
  /** An explanation where the status is not enough. */
  says?: string;
  /**
   * Can the terms be paid with a payment in the call's `_meta`? False where the HTTP server in front of the tools asks
   * for payment itself.
   */
  payable: boolean;
}

/** Writes mpp challenges as the HTTP header, so that one function reads both forms. */
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
  const at = { headersMs: http.headersMs ?? totalMs, totalMs };
  const from = http.outcome === "answered" ? http : { remoteAddress: "", url: "" };
  const answered: Answered = {
    outcome: "answered",
    status,
    headers: { "content-type": "application/json", ...headers },
    body,
    ...at,
    remoteAddress: from.remoteAddress,
    url: from.url,
  };
  return { ...answered, raw };
}

const toJsonBytes = (value: unknown): Uint8Array => Buffer.from(show(value));

/**
 * Makes a 402 of a tool's demand for payment, with the terms in the headers as in x402 version 2; null where there are
 * no terms.
 */
function createDemand(http: EgressResult, places: Places): ToolAnswer | null {
  const [terms] = places.terms;
  const challenges = challengeHeader(places.challenges);
  if (terms === undefined && challenges === undefined) return null;
  const headers: Record<string, string> = {};
  if (terms !== undefined) headers["payment-required"] = Buffer.from(show(terms)).toString("base64");
  if (challenges !== undefined) headers["www-authenticate"] = challenges;
  return { result: createAnswer(http, 402, toJsonBytes(terms ?? {}), headers), payable: true };
}

/** The bytes of the tool's own result: its structured content, else its only text, else the content as JSON. */
function resultBytes(result: unknown): Uint8Array {
  const structured = get(result, "structuredContent");
  if (structured !== undefined && structured !== null) return toJsonBytes(structured);
  const content = get(result, "content");
  const only = Array.isArray(content) && content.length === 1 ? get(content[0], "text") : undefined;
  if (typeof only === "string") return Buffer.from(only);
  return Array.isArray(content) && content.length > 0 ? toJsonBytes(content) : new Uint8Array();
}

/** Reads the response to a `tools/call`, or to an `initialize` that opened no session. */
function readAnswer({ http, rpc }: { http: EgressResult; rpc: Rpc | null }): ToolAnswer {
  const paywall = http.outcome === "answered" && http.status === 402 && rpc === null;
  if (paywall)
    return { result: http, payable: false, says: "the server in front of the tools asks for payment itself" };
  if (rpc === null) {
    if (http.outcome !== "answered" || http.status < 200 || http.status > 299) return { result: http, payable: false };
    const says = "no answer to our question in what came back";
    return { result: createAnswer(http, 502, http.body), payable: false, says };
  }
  if ("error" in rpc) {
    const { code, message, data } = rpc.error;
    const asked = createDemand(http, findInError(data));
    if (asked) return asked;
    const says = `JSON-RPC error ${show(code)}: ${text(message, 500) ?? ""}`;
    return { result: createAnswer(http, 500, toJsonBytes({ error: rpc.error })), payable: false, says };
  }
  const { result } = rpc;
  const places = findInResult(result);
  const asked = isDemand(result, places) ? createDemand(http, places) : null;
  if (asked) return asked;
  const failed = get(result, "isError") === true;
  if (!failed) return { result: createAnswer(http, 200, resultBytes(result), headersOf(result)), payable: true };
  const failureText = Buffer.from(resultBytes(result)).toString("utf8");
  return {
    result: createAnswer(http, 500, toJsonBytes({ error: failureText })),
    payable: true,
    says: `the tool failed: ${failureText.slice(0, 500)}`,
  };
}

/** The headers that an HTTP answer would have: the content type, and the seller's receipt of the settlement. */
function headersOf(result: unknown): Record<string, string> {
  const receipt = get(result, "_meta", "x402/payment-response");
  return {
    ...(parseJson(resultBytes(result)) === undefined ? { "content-type": "text/plain" } : {}),
    ...(receipt === undefined ? {} : { "payment-response": Buffer.from(show(receipt)).toString("base64") }),
  };
}

/** Makes the answer for a response that could not be read within bounds. It counts as no answer (502). */
export const createUnreadAnswer = (http: EgressResult, says: string): ToolAnswer => ({
  result: http.outcome === "answered" ? createAnswer(http, 502, http.body) : http,
  payable: false,
  says: `the answer could not be read: ${says}`,
});

/** Makes the answer for a tool that is not in `tools/list` and so was not called (404). */
export const createAbsentAnswer = (name: string): ToolAnswer => {
  const none = { outcome: "timeout" as const, says: "", totalMs: 0, sent: true };
  return {
    result: createAnswer(none, 404, new Uint8Array()),
    payable: false,
    says: `tools/list does not name ${name}`,
  };
};

/**
 * One request of ours, by its id, and how its HTTP exchange ended. It is plain data, since a worker thread reads it.
 */
export interface Reply {
  id: number;
  http: EgressResult;
}

/** What the server answered to `initialize`. */
export interface InitializeAnswer {
  /** Was our request answered at all? */
  answered: boolean;
  /** Does the server support only the protocol revision without sessions? */
  onlyWithoutSessions: boolean;
  /** The protocol revision that the server chose; undefined: no session was opened. */
  version: string | undefined;
}

/** What one page of `tools/list` has about one tool. */
export interface ListPage {
  tool: ListedTool | null;
  /** Cursor of the next page; undefined on the last one. */
  next: string | undefined;
}

export interface ListedTool {
  /** Schemas of the tool's input and output, where the record can keep them. */
  inputSchema: unknown;
  outputSchema: unknown;
  /** Arguments made from the input schema; null where there is none. */
  sampleArguments: Record<string, unknown> | null;
}

// A stream that was cut off may still hold the whole answer.
const rpcOf = ({ id, http }: Reply): Rpc | null =>
  http.body ? findResponse(id, http.body, http.headers?.["content-type"] ?? "") : null;

const resultOf = (rpc: Rpc | null): unknown => (rpc && "result" in rpc ? rpc.result : undefined);

export function readInitializeAnswer(replied: Reply): InitializeAnswer {
  const rpc = rpcOf(replied);
  const version = text(get(resultOf(rpc), "protocolVersion"), 40);
  return { answered: rpc !== null, onlyWithoutSessions: speaksOnlyWithoutSessions(rpc), version };
}

/** Reads one page of `tools/list`; null when the response holds no list. @param tool name of the tool to look for */
export function readListPage({ tool, ...replied }: Reply & { tool: string }): ListPage | null {
  const result = resultOf(rpcOf(replied));
  const tools = get(result, "tools");
  if (!Array.isArray(tools)) return null;
  const found = tools.find((one) => get(one, "name") === tool);
  if (!isObject(found)) return { tool: null, next: text(get(result, "nextCursor"), 4096) };
  const { inputSchema, outputSchema } = found;
  const sampleArguments = isObject(inputSchema) ? valueIfKeepable(sampleValue(inputSchema)) : null;
  const kept = { inputSchema: valueIfKeepable(inputSchema), outputSchema: valueIfKeepable(outputSchema) };
  return { tool: { ...kept, sampleArguments: isObject(sampleArguments) ? sampleArguments : null }, next: undefined };
}

/** Reads the response to a `tools/call`, or to an `initialize` that opened no session. */
export const readReply = (replied: Reply): ToolAnswer => readAnswer({ http: replied.http, rpc: rpcOf(replied) });
