import { verifyAsync } from "@noble/ed25519";
import { type Expectation, examine, isTorsionFree, isUsableKey, type Verdict } from "./examine.ts";
import { type Jwks, thumbprintText, toBase64url } from "./jwk.ts";

/**
 * Verification of signatures without Node, for browsers, clients and auditors. It needs only WebCrypto
 * (`crypto.subtle`), gives the same results as `verify.ts`, and takes about twenty times as long.
 */

/** Returns the RFC 7638 key id of an Ed25519 public key (`x`, base64url). */
export async function thumbprint(x: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(thumbprintText(x)));
  return toBase64url(new Uint8Array(hash));
}

/**
 * Verifies a signature under a usable key. noble's check includes the cofactor, so the point R must be checked for
 * torsion too.
 */
async function verifySignature(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  return (
    (await verifyAsync(signature, bytes, publicKey, { zip215: false })) && isTorsionFree(signature.subarray(0, 32))
  );
}

/** Verifies an Ed25519 signature over bytes under a 32-byte public key. False for keys that isUsableKey refuses. */
export async function verifyBytes(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  if (publicKey.length !== 32 || signature.length !== 64 || !isUsableKey(publicKey)) return false;
  return verifySignature(publicKey, bytes, signature);
}

/**
 * Verifies an object that the service signed against its keys document. Never throws, whatever an untrusted sender put
 * in.
 */
export async function verifyObject(jwks: Jwks, object: unknown, expected: Expectation): Promise<Verdict> {
  const examination = examine(jwks, object, expected);
  if (!examination.ok) return examination;
  const { key, publicKey, bytes, signature } = examination;
  if ((await thumbprint(key.x)) !== key.kid || !isUsableKey(publicKey)) return { ok: false, reason: "bad_key" };
  return (await verifySignature(publicKey, bytes, signature)) ? { ok: true } : { ok: false, reason: "bad_signature" };
}
