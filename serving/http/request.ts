import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { badField, Problem } from "./problem.ts";

/** A request's body, of at most `maxBytes`. @throws Problem too_large, bad_request */
export async function bodyBytes(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    // Counted as it comes: a length that was announced is a promise, and chunks need not announce one.
    for await (const chunk of body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new Problem("too_large", `at most ${maxBytes} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
    // Whoever sent it went away or was too slow: no fault of ours, though there may be nobody to tell.
    throw new Problem("bad_request", "the body ended too early");
  }
  return Buffer.concat(chunks);
}

/**
 * A request's body as JSON, of at most `maxBytes`. @throws Problem too_large, bad_request
 * @param empty what no body at all stands for, where it may be left out
 */
export async function jsonBody(
  body: ReadableStream<Uint8Array> | null,
  maxBytes: number,
  empty?: object,
): Promise<unknown> {
  const bytes = await bodyBytes(body, maxBytes);
  return bytes.length === 0 && empty ? empty : jsonOf(bytes);
}

/** Bytes as JSON. @throws Problem bad_request */
export function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new Problem("bad_request", "the body is not JSON", { errors: [{ pointer: "", detail: "must be JSON" }] });
  }
}

/** The fields of a form that a browser sent (application/x-www-form-urlencoded). @throws Problem too_large, bad_request */
export async function formBody(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<URLSearchParams> {
  return new URLSearchParams((await bodyBytes(body, maxBytes)).toString("utf8"));
}

/** The `url` of a body, normalised. @throws Problem bad_request */
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
 * One byte range of a Range header (RFC 9110 section 14.2). null: send the whole (no header, another unit, several
 * ranges, malformed, or If-Range names other bytes). "unsatisfiable": 416.
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
