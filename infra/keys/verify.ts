import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { BoundedMap } from "../bounded-map.ts";
import { type Expectation, examine, isUsableKey, type Verdict } from "./examine.ts";
import type { Jwks } from "./jwk.ts";
import { thumbprint } from "./signer.ts";

/**
 * Public keys that were checked, by their `x` (base64url); null for a key that isUsableKey refuses. A service has a
 * few keys; the bound limits keys from other services' documents.
 */
const checkedKeys = new BoundedMap<string, KeyObject | null>(256);

function toUsableKey(x: string, publicKey: Uint8Array): KeyObject | null {
  const cachedKey = checkedKeys.get(x);
  if (cachedKey !== undefined) return cachedKey;
  const key = isUsableKey(publicKey)
    ? createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" })
    : null;
  checkedKeys.set(x, key);
  return key;
}

const toX = (publicKey: Uint8Array): string => Buffer.from(publicKey).toString("base64url");

/**
 * Verifies an Ed25519 signature over bytes under a 32-byte public key; false for keys that isUsableKey refuses. Takes
 * 118 us, and 2 ms at the first use of a key.
 */
export function verifyBytes(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): boolean {
  if (publicKey.length !== 32 || signature.length !== 64) return false;
  const key = toUsableKey(toX(publicKey), publicKey);
  return key !== null && verify(null, bytes, key, signature);
}

/**
 * Verifies as {@link verifyBytes} does, but on Node's thread pool, without blocking the calling thread. At most four
 * run at once, and other work of the pool (files, name look-ups) waits behind them, so callers should start few at a
 * time. The arguments are read before this function returns. Resolves to false when OpenSSL fails.
 */
export function verifySoon(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  const key = publicKey.length === 32 && signature.length === 64 ? toUsableKey(toX(publicKey), publicKey) : null;
  if (key === null) return Promise.resolve(false);
  return new Promise((resolve) => verify(null, bytes, key, signature, (error, isValid) => resolve(!error && isValid)));
}

/**
 * Verifies an object signed by signObject against a keys document. Never throws, whatever an untrusted sender put in.
 * `portable.ts` gives the same answer without Node.
 */
export function verifyObject(jwks: Jwks, object: unknown, expected: Expectation): Verdict {
  const examination = examine(jwks, object, expected);
  if (!examination.ok) return examination;
  const { key, publicKey, bytes, signature } = examination;
  if (thumbprint(key.x) !== key.kid || toUsableKey(key.x, publicKey) === null) return { ok: false, reason: "bad_key" };
  return verifyBytes(publicKey, bytes, signature) ? { ok: true } : { ok: false, reason: "bad_signature" };
}
