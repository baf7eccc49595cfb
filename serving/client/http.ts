/**
 * Why there is no valid answer of the service. No code is a judgement on a seller. timeout, unreachable: no complete
 * answer was received. redirected: the answer is a redirect, which the service never sends. too_large, bad_answer: the
 * answer is too long, or has another form. limited: status 429. unavailable: status 5xx. problem: the service refused
 * the request with another status. bad_signature: no valid key of the service signed the answer. stale: the time of
 * signing is too far from the time here. unproven: the card of the answer is not proven to be in the log. other_answer:
 * the answer is signed, but answers another question.
 */
export type FaultCode =
  | "timeout"
  | "unreachable"
  | "redirected"
  | "too_large"
  | "bad_answer"
  | "limited"
  | "unavailable"
  | "problem"
  | "bad_signature"
  | "stale"
  | "unproven"
  | "other_answer";

/** Thrown when there is no valid answer of the service. */
export class ServiceFault extends Error {
  /** @param retryAfter_s from the answer's Retry-After; null if it has none */
  constructor(
    readonly code: FaultCode,
    readonly says: string,
    readonly status: number | null = null,
    readonly retryAfter_s: number | null = null,
    options?: ErrorOptions,
  ) {
    super(`${code}: ${says}`, options);
    this.name = "ServiceFault";
  }
}

export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

export interface Limits {
  /** Time limit of the request, the response body included. */
  timeout_ms: number;
  /** Longest response body, after decoding. */
  max_bytes: number;
}

/** Reads a body of at most `max_bytes`. @throws ServiceFault too_large */
export async function readBounded(body: ReadableStream<Uint8Array> | null, max_bytes: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array();
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > max_bytes) {
      // Not awaited: a peer that keeps sending must not delay the caller.
      reader.cancel().catch(() => {});
      throw new ServiceFault("too_large", `more than ${max_bytes} bytes`);
    }
    parts.push(value);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

export interface JsonAnswer {
  status: number;
  headers: Headers;
  body: unknown;
}

const MAX_RETRY_AFTER_S = 86_400;

/**
 * Reads `Retry-After` in its form in seconds (RFC 9110 section 10.2.3), at most a day; null if there is none.
 */
export function retryAfter(headers: Headers): number | null {
  const text = headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(text) ? Math.min(Number(text), MAX_RETRY_AFTER_S) : null;
}

function detailOf(body: unknown): string | null {
  const detail = (body as { detail?: unknown } | null)?.detail;
  return typeof detail === "string" ? detail.slice(0, 500) : null;
}

function refusal({ status, headers, body }: JsonAnswer): ServiceFault {
  const code = status === 429 ? "limited" : status >= 500 ? "unavailable" : "problem";
  return new ServiceFault(code, detailOf(body) ?? `status ${status}`, status, retryAfter(headers));
}

function toFault(error: unknown): ServiceFault {
  if (error instanceof ServiceFault) return error;
  const { name, message } = error as { name?: string; message?: string };
  if (name === "TimeoutError" || name === "AbortError") {
    return new ServiceFault("timeout", "no complete answer within the time limit", null, null, { cause: error });
  }
  return new ServiceFault("unreachable", message ?? "no answer", null, null, { cause: error });
}

/**
 * Sends one request and returns the JSON answer. Redirects are not followed; they are detected here, since some worker
 * runtimes do not support `redirect: "error"`.
 * @throws ServiceFault for everything except a 2xx with JSON
 */
export async function askJson(fetch: Fetch, url: string, init: RequestInit, limits: Limits): Promise<JsonAnswer> {
  try {
    const timeout = AbortSignal.timeout(limits.timeout_ms);
    const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
    const headers = new Headers(init.headers);
    headers.set("accept", "application/json");
    const response = await withSignal(fetch(url, { ...init, headers, redirect: "manual", signal }), signal);
    const { status } = response;
    if (response.type === "opaqueredirect" || (status >= 300 && status < 400)) {
      throw new ServiceFault("redirected", `the service answered with a redirect (${status})`, status);
    }
    const bytes = await withSignal(readBounded(response.body, limits.max_bytes), signal);
    const answer = { status, headers: response.headers, body: parseBody(bytes) };
    if (!response.ok) throw refusal(answer);
    if (answer.body === undefined) throw new ServiceFault("bad_answer", "the answer is not JSON", status);
    return answer;
  } catch (error) {
    throw toFault(error);
  }
}

/** Rejects when the signal aborts, even if the caller's fetch ignores signals. */
function withSignal<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

function parseBody(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
