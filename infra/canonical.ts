import { createHash } from "node:crypto";
import { type CanonicalOptions, canonicalText } from "./canonical-text.ts";

export { type CanonicalOptions, canonicalText, type Json, MAX_DEPTH, MAX_INTEGER } from "./canonical-text.ts";

/** Returns the RFC 8785 bytes (UTF-8) of a JSON value; see {@link canonicalText}. */
export function canonicalBytes(value: unknown, options: CanonicalOptions = {}): Buffer {
  return Buffer.from(canonicalText(value, options), "utf8");
}

/** Returns the lower-case hex sha256 of bytes or of a UTF-8 string. */
export function sha256hex(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Returns the 32 bytes of the sha256 of bytes or of a UTF-8 string. */
export function sha256(data: Uint8Array | string): Buffer {
  return createHash("sha256").update(data).digest();
}

/** Computes the lower-case hex sha256 of bytes on a thread of the pool, so that megabytes do not block the event loop. */
export async function sha256hexAsync(bytes: Uint8Array): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)).toString("hex");
}
