import { isBounded, parseJson } from "../../pipelines/record/json.ts";
import { joinDemands, type Offer, type PaymentDemand, readDemand } from "../../pipelines/record/terms/offers.ts";
import { findDemandsInError, findDemandsInResult, readToolDemand } from "../../pipelines/record/terms/tools.ts";
import { readBounded } from "./http.ts";

/** A demand for payment, which a wallet is about to sign. */
export interface Demand {
  /** Url to which the request was sent, not the url that the 402 names. A tool of an MCP server is `url#tool`. */
  url: string;
  method?: string | undefined;
  /** The offer that the wallet accepts; or, before it has chosen, all offers that it may accept. */
  offers: readonly Offer[];
}

const MAX_BODY_BYTES = 1024 * 1024;
/** Longest answer over MCP, bytes. The answer may be what a tool sells, and longer than a demand for payment. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** Largest number of JSON values in an answer over MCP. */
const MAX_MESSAGE_VALUES = 1_000_000;

/** Reads a body; null if it is too long, breaks off, or is not complete within `within_ms`. */
async function within(body: ReadableStream<Uint8Array> | null, within_ms: number): Promise<Uint8Array | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("late")), within_ms);
    });
    return await Promise.race([readBounded(body, MAX_BODY_BYTES), late]);
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Reads all offers of a 402, in its headers and its body. It reads a copy of the response, so the caller can still read
 * the response.
 * @param within_ms time limit for the body, which a seller may send slowly
 */
export async function read402(response: Response, within_ms: number): Promise<PaymentDemand> {
  const body = await within(response.clone().body, within_ms);
  return readDemand((name) => response.headers.get(name), body);
}

/**
 * Is this a message to an MCP server (streamable HTTP)? Such a server demands payment in the JSON-RPC answer, with
 * status 200, and the client library mppx pays it. The headers decide, as in mppx, since the body may be a stream.
 */
export function isMcpRequest(method: string, headers: Headers): boolean {
  if (method === "GET" || method === "HEAD") return false;
  const accept = (headers.get("accept") ?? "").toLowerCase();
  return headers.has("mcp-method") || (accept.includes("application/json") && accept.includes("text/event-stream"));
}

/** Returns the tool that a JSON-RPC request calls; null if the body is no text or names none. */
export function toolIn(body: unknown): string | null {
  if (typeof body !== "string" || body.length > MAX_BODY_BYTES) return null;
  const message = parseJson(body) as { params?: { name?: unknown } } | null | undefined;
  const name = message?.params?.name;
  return typeof name === "string" ? name : null;
}

const UNREAD: PaymentDemand = { offers: [], unread: "the answer over MCP holds more than is read" };

/** Returns the demand for payment in one JSON-RPC message, or in a batch of them. */
function inMessage(text: string): PaymentDemand {
  if (!isBounded(text, MAX_MESSAGE_VALUES)) return UNREAD;
  const parsed = parseJson(text, MAX_MESSAGE_VALUES);
  const messages = (Array.isArray(parsed) ? parsed : [parsed]) as (Record<string, unknown> | null | undefined)[];
  const places = messages.flatMap((one) => [
    findDemandsInError((one?.error as { data?: unknown } | undefined)?.data),
    findDemandsInResult(one?.result),
  ]);
  return joinDemands(places.map(readToolDemand));
}

/**
 * Returns the data of the first event with data in an event stream (WHATWG HTML section 9.2.6), since mppx reads no
 * further; null if there is none. An event that is cut off at the end counts, since mppx passes it on.
 */
async function firstEvent(body: ReadableStream<Uint8Array> | null): Promise<string | null> {
  if (body === null) return null;
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const data: string[] = [];
  let size = 0;
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      size += value?.length ?? 0;
      if (size > MAX_MESSAGE_BYTES) throw new Error("too long");
      const chunk = done ? `${decoder.decode()}\n\n` : decoder.decode(value, { stream: true });
      rest += chunk;
      if (!/[\r\n]/.test(chunk)) continue;
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line === "" && data.some((one) => one !== "")) return data.join("\n");
      }
      if (done) return null;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Reads the demand in the answer to a message over MCP. It has no time limit, since a tool may run for long: the
 * caller's limit applies. Of an event stream it reads the first event with data.
 */
export async function readMcpAnswer(response: Response): Promise<PaymentDemand> {
  const type = (response.headers.get("content-type") ?? "").toLowerCase();
  try {
    if (type.includes("text/event-stream")) {
      const data = await firstEvent(response.clone().body);
      return data === null ? { offers: [], unread: null } : inMessage(data);
    }
    if (!type.includes("json")) return { offers: [], unread: null };
    return inMessage(new TextDecoder().decode(await readBounded(response.clone().body, MAX_MESSAGE_BYTES)));
  } catch {
    return UNREAD;
  }
}
