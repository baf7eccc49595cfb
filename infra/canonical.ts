import { createHash } from "node:crypto";
import canonicalize from "canonicalize";

/** What RFC 8785 can print. Anything else (undefined, function, bigint, NaN) is refused before it becomes bad bytes. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** Nesting that we sign or hash; the canonicalizer recurses and would overflow the stack near 5,000. */
export const MAX_DEPTH = 64;

function refuse(value: unknown, path: string, depth: number): void {
  if (depth > MAX_DEPTH) throw new TypeError(`not canonical: deeper than ${MAX_DEPTH} at ${path}`);
  if (value === null || typeof value === "string" || typeof value === "boolean") return;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`not canonical: ${value} at ${path}`);
    return;
  }
  if (Array.isArray(value)) {
    value.forEach((item, i) => {
      refuse(item, `${path}/${i}`, depth + 1);
    });
    return;
  }
  if (typeof value === "object") {
    for (const [key, item] of Object.entries(value)) {
      if (item !== undefined) refuse(item, `${path}/${key}`, depth + 1);
    }
    return;
  }
  throw new TypeError(`not canonical: ${typeof value} at ${path}`);
}

/**
 * RFC 8785 text of a JSON value. Members that are `undefined` are left out, as JSON.stringify does.
 * @throws TypeError on functions, bigint, NaN, infinities or nesting past MAX_DEPTH.
 */
export function canonicalText(value: unknown): string {
  refuse(value, "", 0);
  const text = canonicalize(value);
  if (text === undefined) throw new TypeError("not canonical: nothing to print");
  return text;
}

/** RFC 8785 bytes (UTF-8) of a JSON value; see {@link canonicalText}. */
export function canonicalBytes(value: unknown): Buffer {
  return Buffer.from(canonicalText(value), "utf8");
}

/** Lower-case hex sha256 of bytes or of a UTF-8 string. */
export function sha256hex(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Raw sha256. */
export function sha256(data: Uint8Array | string): Buffer {
  return createHash("sha256").update(data).digest();
}
