import { parseJson } from "../../../pipelines/published/errors.ts";

/**
 * A request to an address that this service's operator set. Unlike an address from a client, it may be inside the
 * operator's network.
 */
export interface OperatorRequest {
  url: string;
  headers: Readonly<Record<string, string>>;
  /** Sent by POST as JSON; without it the request is a GET. */
  body?: object;
  timeoutMs: number;
  /** Longest answer, bytes. */
  maxBytes: number;
  signal?: AbortSignal | undefined;
}

/**
 * Requests JSON from an address that the operator set. Redirects are not followed.
 * @throws Error for another status than 2xx, or an answer that is too long, late or no JSON. The error's message
 * contains no part of the address or the headers, which may hold a key.
 */
export async function fetchOperatorJson(request: OperatorRequest): Promise<unknown> {
  const { url, headers, body, timeoutMs, maxBytes, signal } = request;
  const timeout = AbortSignal.timeout(timeoutMs);
  const answer = await fetch(url, {
    method: body ? "POST" : "GET",
    headers: { accept: "application/json", ...(body ? { "content-type": "application/json" } : {}), ...headers },
    ...(body ? { body: JSON.stringify(body) } : {}),
    redirect: "error",
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
  });
  if (!answer.ok || !answer.body) {
    await answer.body?.cancel();
    throw new Error(`it answered with status ${answer.status}`);
  }
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new Error(`its answer is longer than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  const value = parseJson(Buffer.concat(chunks));
  if (value === undefined) throw new Error("its answer is no JSON");
  return value;
}
