import { get, isObject, parseJson } from "../json.ts";

/** What a server said to one question of ours: JSON-RPC 2.0, the members that are there. */
export type Rpc = { result: unknown } | { error: { code: unknown; message: unknown; data: unknown } };

/** Events of one stream, and messages of one batch, that are looked through for our answer. */
const MAX_MESSAGES = 1_000;

export const question = (id: number, method: string, params: unknown): Uint8Array =>
  Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, method, params }));

export const notice = (method: string): Uint8Array => Buffer.from(JSON.stringify({ jsonrpc: "2.0", method }));

/** Data of the events of a `text/event-stream` (WHATWG HTML section 9.2.6); an event that broke off is none. */
function events(body: Uint8Array): string[] {
  const text = new TextDecoder("utf-8").decode(body).replace(/\r\n?/g, "\n");
  const whole = text.endsWith("\n\n") ? text : text.slice(0, Math.max(0, text.lastIndexOf("\n\n")));
  return whole.split("\n\n").map((event) =>
    event
      .split("\n")
      .flatMap((line) => (line.startsWith("data:") ? [line.slice(5).replace(/^ /, "")] : []))
      .join("\n"),
  );
}

function messages(body: Uint8Array, contentType: string): unknown[] {
  const texts = /text\/event-stream/i.test(contentType) ? events(body).filter((data) => data !== "") : [body];
  return texts.slice(0, MAX_MESSAGES).flatMap((one) => {
    const parsed = parseJson(one);
    return Array.isArray(parsed) ? parsed.slice(0, MAX_MESSAGES) : [parsed];
  });
}

/**
 * The answer to the question with this id, in a body that is JSON or a stream of events; null when there is none.
 * What a server asks or tells us on the way is passed over, and so is an answer to a question that was not ours.
 */
export function answerTo(id: number, body: Uint8Array, contentType: string): Rpc | null {
  for (const message of messages(body, contentType)) {
    if (!isObject(message) || message.id !== id || "method" in message) continue;
    const error = get(message, "error");
    if (isObject(error)) return { error: { code: error.code, message: error.message, data: error.data } };
    if (get(message, "result") !== undefined) return { result: message.result };
  }
  return null;
}
