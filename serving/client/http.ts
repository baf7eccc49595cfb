/**
 * Why the service could not be asked, or its answer not be believed. None of these is about a seller.
 * timeout, unreachable: no answer came. redirected: the service never redirects. too_large, bad_answer: the answer is
 * not what was asked for. limited: 429. unavailable: 5xx. problem: the service refused the question, with a reason.
 * bad_signature: no key of the service signed this. stale: signed too long ago. other_answer: signed, but for another
 * question.
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

/** The service could not be asked, or its answer is not believed. */
export class ServiceFault extends Error {
  /** @param retryAfter_s from the answer's Retry-After, where it has one */
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
  /** Time for the whole exchange with its body. */
  timeout_ms: number;
  /** Longest body, after decoding. */
  max_bytes: number;
}

/** Reads a body, holding at most `max_bytes`. @throws ServiceFault too_large */
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
      // Not awaited, since a peer that goes on sending must not hold up the caller.
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
 * Seconds from `Retry-After` (RFC 9110 section 10.2.3, the form in seconds), at most a day; null where there is none.
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

function brokenBy(error: unknown): ServiceFault {
  if (error instanceof ServiceFault) return error;
  const { name, message } = error as { name?: string; message?: string };
  if (name === "TimeoutError" || name === "AbortError") {
    return new ServiceFault("timeout", "no whole answer in time", null, null, { cause: error });
  }
  return new ServiceFault("unreachable", message ?? "no answer", null, null, { cause: error });
}

/**
 * One exchange with the service, with the answer as JSON. Redirects are not followed. They are detected by hand, since
 * not every runtime of workers knows `redirect: "error"`.
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
    const answer = { status, headers: response.headers, body: parsed(bytes) };
    if (!response.ok) throw refusal(answer);
    if (answer.body === undefined) throw new ServiceFault("bad_answer", "the answer is no JSON", status);
    return answer;
  } catch (error) {
    throw brokenBy(error);
  }
}

/** Rejects when the signal aborts, even if a fetch that was passed in ignores signals. */
function withSignal<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
