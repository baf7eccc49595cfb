/** Converts bytes to and from text, and hashes them, in any runtime with WebCrypto. */

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

function concat(...parts: (Uint8Array | readonly number[])[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Returns the SHA-256 hash of the concatenated parts, 32 bytes. */
export const sha256 = async (...parts: (Uint8Array | readonly number[])[]): Promise<Uint8Array> =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...parts)));

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const base64 = (bytes: Uint8Array): string =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/**
 * Decodes base64. Returns null for a text that is not the canonical encoding of its bytes, since otherwise one
 * signature could be written as two texts.
 */
export function fromBase64(text: unknown): Uint8Array | null {
  if (typeof text !== "string" || !/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) return null;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return base64(bytes) === text ? bytes : null;
}
