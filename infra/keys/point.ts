import { Point } from "@noble/ed25519";

/**
 * Where verifiers of Ed25519 disagree: points with a part of order 2, 4 or 8, and second encodings of one point. Node
 * checks the equation as it stands, others times the cofactor eight; a key of small order "verifies" signatures that
 * nobody made. Outside of what these two functions admit, we admit nothing.
 */

/** Is this the one encoding (RFC 8032 section 5.1.3, y below p) of a point in the group of prime order? */
export function isTorsionFree(bytes: Uint8Array): boolean {
  try {
    return Point.fromBytes(bytes).isTorsionFree();
  } catch {
    return false;
  }
}

/** Is this public key one on which all verifiers give the same answer? The neutral point is none. */
export const isUsableKey = (publicKey: Uint8Array): boolean =>
  isTorsionFree(publicKey) && !Point.fromBytes(publicKey).is0();
