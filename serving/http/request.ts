import { MAX_NESTED, MAX_VALUES, parseJson } from "../../pipelines/record/json.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { badField, Problem } from "./problem.ts";

/** Reads a request's body of at most `maxBytes`. @throws Problem too_large, bad_request */
export async function readBody(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let byteCount = 0;
  try {
    // Bytes are counted as they arrive: Content-Length may be absent or wrong.
    for await (const chunk of body ?? []) {
      byteCount += chunk.byteLength;
      if (byteCount > maxBytes) throw new Problem("too_large", `at most ${maxBytes} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
    // The client disconnected or was too slow.
    throw new Problem("bad_request", "the body ended too early");
  }
  return Buffer.concat(chunks);
}

/**
 * Reads a request's body of at most `maxBytes` as JSON.
 * @param empty result for an empty body; without it an empty body is an error
 * @throws Problem too_large, bad_request
 */
export async function readJson(
  body: ReadableStream<Uint8Array> | null,
  maxBytes: number,
  empty?: object,
): Promise<unknown> {
  const bytes = await readBody(body, maxBytes);
  return bytes.length === 0 && empty ? empty : jsonOf(bytes);
}

/** Parses bytes as UTF-8 JSON, with the bounds of {@link parseJson}. @throws Problem bad_request */
export function jsonOf(bytes: Uint8Array): unknown {
  const value = parseJson(bytes);
  if (value !== undefined) return value;
  const detail = `must be JSON, at most ${MAX_NESTED} levels deep and of at most ${MAX_VALUES} values`;
  throw new Problem("bad_request", `the body ${detail}`, { errors: [{ pointer: "", detail }] });
}

/** Reads the fields of a form (application/x-www-form-urlencoded). @throws Problem too_large, bad_request */
export async function readForm(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<URLSearchParams> {
  return new URLSearchParams((await readBody(body, maxBytes)).toString("utf8"));
}

/** Normalises the member `url` of a body. @throws Problem bad_request */
export function normalisedUrl(url: string): string {
  try {
    return normaliseUrl(url);
  } catch (error) {
    if (error instanceof BadUrl) throw badField("/url", error.says);
    throw error;
  }
}

/** Bytes [start, end) of an object. */
export interface ByteRange {
  start: number;
  end: number;
}

/**
 * Parses a Range header with one byte range (RFC 9110 section 14.2). Returns null when the whole object is to be sent
 * (no header, another unit, several ranges, malformed, or If-Range does not match), and "unsatisfiable" for a 416.
 */
export function parseRange(headers: Headers, size: number, etag: string): ByteRange | "unsatisfiable" | null {
  const header = headers.get("range");
  const match = header === null ? null : /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim());
  if (!match || (match[1] === "" && match[2] === "")) return null;
  const condition = headers.get("if-range");
  if (condition !== null && condition.trim() !== etag) return null;
  if (match[1] === "") {
    const length = Math.min(Number(match[2]), size);
    return length === 0 ? "unsatisfiable" : { start: size - length, end: size };
  }
  const start = Number(match[1]);
  const end = match[2] === "" ? size : Math.min(Number(match[2]) + 1, size);
  if (match[2] !== "" && Number(match[2]) < start) return null;
  return start >= size ? "unsatisfiable" : { start, end };
}
