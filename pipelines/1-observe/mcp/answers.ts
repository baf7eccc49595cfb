import type { EgressResult } from "../../../infra/egress/egress.ts";
import { findInError, findInResult, isDemand, type Places } from "../../record/terms/tools.ts";
import { get, isObject, keepable, parseJson, show, text } from "../json.ts";
import { sample } from "../probe/synthetic.ts";
import { answerTo, type Rpc, speaksOnlyWithoutSessions } from "./rpc.ts";

/**
 * A tool's answer in terms of HTTP, so that the code that evaluates endpoints evaluates tools too. Status 402: payment
 * is required; 200: the tool's result; 500: an error of the tool or the server; 404: no such tool; 502: no answer to
 * our request. An exchange that failed on the way keeps its own outcome.
 */
export interface ToolAnswer {
  /** `raw`: the bytes as they were received, which the record hashes. */
  result: EgressResult & { raw?: Uint8Array };
  /** An explanation where the status alone does not tell. */
  says?: string;
  /** May the terms be paid in the call's `_meta`? False for what the HTTP server in front of the tools asks for. */
  payable: boolean;
}

/** mpp challenges written as the HTTP header, so that one reader reads both. */
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

function asAnswer(http: EgressResult, status: number, body: Uint8Array, headers: Record<string, string> = {}) {
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

const json = (value: unknown): Uint8Array => Buffer.from(show(value));

/** A demand for payment as a 402 with its terms in the header, as version 2 has them; null where there are no terms. */
function demand(http: EgressResult, places: Places): ToolAnswer | null {
  const [terms] = places.terms;
  const challenges = challengeHeader(places.challenges);
  if (terms === undefined && challenges === undefined) return null;
  const headers: Record<string, string> = {};
  if (terms !== undefined) headers["payment-required"] = Buffer.from(show(terms)).toString("base64");
  if (challenges !== undefined) headers["www-authenticate"] = challenges;
  return { result: asAnswer(http, 402, json(terms ?? {}), headers), payable: true };
}

/** The tool's own result: structured content, else its only text, else the content as JSON. */
function given(result: unknown): Uint8Array {
  const structured = get(result, "structuredContent");
  if (structured !== undefined && structured !== null) return json(structured);
  const content = get(result, "content");
  const only = Array.isArray(content) && content.length === 1 ? get(content[0], "text") : undefined;
  if (typeof only === "string") return Buffer.from(only);
  return Array.isArray(content) && content.length > 0 ? json(content) : new Uint8Array();
}

/** Reads the response to a `tools/call`, or to an `initialize` that opened no session. */
function readAnswer({ http, rpc }: { http: EgressResult; rpc: Rpc | null }): ToolAnswer {
  const paywall = http.outcome === "answered" && http.status === 402 && rpc === null;
  if (paywall)
    return { result: http, payable: false, says: "the server in front of the tools asks for payment itself" };
  if (rpc === null) {
    if (http.outcome !== "answered" || http.status < 200 || http.status > 299) return { result: http, payable: false };
    const says = "no answer to our question in what came back";
    return { result: asAnswer(http, 502, http.body), payable: false, says };
  }
  if ("error" in rpc) {
    const { code, message, data } = rpc.error;
    const asked = demand(http, findInError(data));
    if (asked) return asked;
    const says = `JSON-RPC error ${show(code)}: ${text(message, 500) ?? ""}`;
    return { result: asAnswer(http, 500, json({ error: rpc.error })), payable: false, says };
  }
  const { result } = rpc;
  const places = findInResult(result);
  const asked = isDemand(result, places) ? demand(http, places) : null;
  if (asked) return asked;
  const failed = get(result, "isError") === true;
  if (!failed) return { result: asAnswer(http, 200, given(result), headersOf(result)), payable: true };
  const said = Buffer.from(given(result)).toString("utf8");
  return {
    result: asAnswer(http, 500, json({ error: said })),
    payable: true,
    says: `the tool failed: ${said.slice(0, 500)}`,
  };
}

/** The headers that HTTP would have: the type of the answer, and the seller's receipt of the settlement. */
function headersOf(result: unknown): Record<string, string> {
  const receipt = get(result, "_meta", "x402/payment-response");
  return {
    ...(parseJson(given(result)) === undefined ? { "content-type": "text/plain" } : {}),
    ...(receipt === undefined ? {} : { "payment-response": Buffer.from(show(receipt)).toString("base64") }),
  };
}

/** For a response that could not be read within bounds: it counts as no answer. */
export const unread = (http: EgressResult, says: string): ToolAnswer => ({
  result: http.outcome === "answered" ? asAnswer(http, 502, http.body) : http,
  payable: false,
  says: `the answer could not be read: ${says}`,
});

/** For a tool that is not in the list: it was not called. */
export const absent = (name: string): ToolAnswer => {
  const none = { outcome: "timeout" as const, says: "", totalMs: 0, sent: true };
  return { result: asAnswer(none, 404, new Uint8Array()), payable: false, says: `tools/list does not name ${name}` };
};

/** One request of ours and how its HTTP exchange ended. Plain data, so that a worker thread can read it. */
export interface Replied {
  id: number;
  http: EgressResult;
}

/** What the server answered to `initialize`. */
export interface Welcome {
  /** Was our request answered at all? */
  answered: boolean;
  /** The server supports only the revision without sessions. */
  alone: boolean;
  /** The revision that the server chose; undefined: no session was opened. */
  version: string | undefined;
}

/** One page of `tools/list`, as far as it concerns one tool. */
export interface ListPage {
  tool: ListedTool | null;
  /** Cursor of the next page; undefined on the last one. */
  next: string | undefined;
}

export interface ListedTool {
  /** Schemas of the tool's input and output, where the record can keep them. */
  inputSchema: unknown;
  outputSchema: unknown;
  /** Arguments made from the input schema, where there is one. */
  made: Record<string, unknown> | null;
}

// A stream that was cut off may still hold the whole answer.
const rpcOf = ({ id, http }: Replied): Rpc | null =>
  http.body ? answerTo(id, http.body, http.headers?.["content-type"] ?? "") : null;

const resultOf = (rpc: Rpc | null): unknown => (rpc && "result" in rpc ? rpc.result : undefined);

export function readWelcome(replied: Replied): Welcome {
  const rpc = rpcOf(replied);
  const version = text(get(resultOf(rpc), "protocolVersion"), 40);
  return { answered: rpc !== null, alone: speaksOnlyWithoutSessions(rpc), version };
}

/** Null when the response holds no list. @param tool name of the tool that is looked for */
export function readListPage({ tool, ...replied }: Replied & { tool: string }): ListPage | null {
  const result = resultOf(rpcOf(replied));
  const tools = get(result, "tools");
  if (!Array.isArray(tools)) return null;
  const found = tools.find((one) => get(one, "name") === tool);
  if (!isObject(found)) return { tool: null, next: text(get(result, "nextCursor"), 4096) };
  const { inputSchema, outputSchema } = found;
  const made = isObject(inputSchema) ? keepable(sample(inputSchema)) : null;
  const kept = { inputSchema: keepable(inputSchema), outputSchema: keepable(outputSchema) };
  return { tool: { ...kept, made: isObject(made) ? made : null }, next: undefined };
}

/** The response to a `tools/call`, or to an `initialize` that opened no session. */
export const readReply = (replied: Replied): ToolAnswer => readAnswer({ http: replied.http, rpc: rpcOf(replied) });
