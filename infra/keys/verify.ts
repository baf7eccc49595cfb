import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { BoundedMap } from "../bounded-map.ts";
import { type Expectation, examine, isUsableKey, type Verdict } from "./examine.ts";
import type { Jwks } from "./jwk.ts";
import { thumbprint } from "./signer.ts";

/**
 * Public keys that were checked, by x; null for a key that isUsableKey refuses. A service has a handful; the bound is for
 * keys in other people's documents.
 */
const keys = new BoundedMap<string, KeyObject | null>(256);

function keyOf(x: string, publicKey: Uint8Array): KeyObject | null {
  const known = keys.get(x);
  if (known !== undefined) return known;
  const key = isUsableKey(publicKey)
    ? createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" })
    : null;
  keys.set(x, key);
  return key;
}

const toX = (publicKey: Uint8Array): string => Buffer.from(publicKey).toString("base64url");

/** Ed25519 over bytes under a 32-byte public key; false for keys that isUsableKey refuses. 118 us, first use of a key 2 ms. */
export function verifyBytes(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): boolean {
  if (publicKey.length !== 32 || signature.length !== 64) return false;
  const key = keyOf(toX(publicKey), publicKey);
  return key !== null && verify(null, bytes, key, signature);
}

/**
 * Verifies as {@link verifyBytes} does, on Node's thread pool: up to four at once, and the caller's thread goes on. Other work
 * of that pool (files, name look-ups) waits behind it, so ask for few at once. The arguments are read before this function
 * returns. Resolves to false when the engine fails.
 */
export function verifySoon(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  const key = publicKey.length === 32 && signature.length === 64 ? keyOf(toX(publicKey), publicKey) : null;
  if (key === null) return Promise.resolve(false);
  return new Promise((resolve) => verify(null, bytes, key, signature, (error, good) => resolve(!error && good)));
}

/**
 * Verify an object signed by signObject against a keys document. Never throws for what a stranger sent.
 * `portable.ts` gives the same answer without Node.
 */
export function verifyObject(jwks: Jwks, object: unknown, expected: Expectation): Verdict {
  const examined = examine(jwks, object, expected);
  if (!examined.ok) return examined;
  const { key, publicKey, bytes, signature } = examined;
  if (thumbprint(key.x) !== key.kid || keyOf(key.x, publicKey) === null) return { ok: false, reason: "bad_key" };
  return verifyBytes(publicKey, bytes, signature) ? { ok: true } : { ok: false, reason: "bad_signature" };
}
