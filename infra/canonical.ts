import { createHash } from "node:crypto";
import { type CanonicalOptions, canonicalText } from "./canonical-text.ts";

export { type CanonicalOptions, canonicalText, type Json, MAX_DEPTH, MAX_INTEGER } from "./canonical-text.ts";

/** RFC 8785 bytes (UTF-8) of a JSON value; see {@link canonicalText}. */
export function canonicalBytes(value: unknown, options: CanonicalOptions = {}): Buffer {
  return Buffer.from(canonicalText(value, options), "utf8");
}

/** Lower-case hex sha256 of bytes or of a UTF-8 string. */
export function sha256hex(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Raw sha256. */
export function sha256(data: Uint8Array | string): Buffer {
  return createHash("sha256").update(data).digest();
}

/** Lower-case hex sha256 of bytes, on a thread of the pool: megabytes of a stranger's hold nobody up. */
export async function sha256Soon(bytes: Uint8Array): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)).toString("hex");
}
