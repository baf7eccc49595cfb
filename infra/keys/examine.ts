import { Point } from "@noble/ed25519";
import canonicalize from "canonicalize";
import { MAX_DEPTH, MAX_INTEGER } from "../canonical-text.ts";
import { fromBase64url, type Jwks, type PublicJwk, type Purpose } from "./jwk.ts";

/**
 * Why a signature is refused:
 * malformed: the value is no object, a field has the wrong type, the signature is not 64 bytes in strict base64url, or
 * the time is invalid.
 * canonicalization: the object does not name RFC8785, or cannot be printed canonically (see {@link signedBytes}).
 * unknown_key: no published key has this id. wrong_purpose: the key with this id signs other kinds of objects.
 * bad_key: the published key is not an Ed25519 key fit for use, or its id is not its thumbprint.
 * not_yet_valid, retired: the key was not valid at the time of the signature. bad_signature: the signature is not over
 * these bytes.
 */
export type VerifyFault =
  | "malformed"
  | "canonicalization"
  | "unknown_key"
  | "wrong_purpose"
  | "bad_key"
  | "not_yet_valid"
  | "retired"
  | "bad_signature";

export type Verdict = { ok: true } | { ok: false; reason: VerifyFault };

/** What a verifier requires of the signature of an object. */
export interface Expectation {
  /** Purpose that the signing key must have. */
  purpose: Purpose;
  /** Time of the signature as the object states it: its `computed_at`, `answered_at` or `verified_at`. */
  at: Date | string;
  /**
   * Defaults for objects that may leave out `signing_key_id` and `canonicalization` (scorecards): the key with the id
   * `kid`, and RFC8785. A field that is present takes precedence over its default.
   */
  defaults?: { kid: string };
}

/**
 * Result of all checks except the signature itself. Both verifiers (verify.ts and portable.ts) use it, so that they
 * cannot disagree.
 */
export type Examination =
  | { ok: true; key: PublicJwk; publicKey: Uint8Array; bytes: Uint8Array; signature: Uint8Array }
  | { ok: false; reason: VerifyFault };

const refuse = (reason: VerifyFault): { ok: false; reason: VerifyFault } => ({ ok: false, reason });

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

type KeySearch = { ok: true; key: PublicJwk; publicKey: Uint8Array } | { ok: false; reason: VerifyFault };

/**
 * Finds the published key `kid` for `purpose` that is well formed and valid at `atMs` (`valid_from` inclusive,
 * `retired_at` exclusive).
 */
function findKey(jwks: Jwks, kid: string, purpose: Purpose, atMs: number): KeySearch {
  const keys = isObject(jwks) && Array.isArray(jwks.keys) ? jwks.keys : [];
  const keysWithId = keys.filter((key) => isObject(key) && key.kid === kid);
  if (keysWithId.length === 0) return refuse("unknown_key");
  const key = keysWithId.find((candidate) => candidate.purpose === purpose);
  if (!key) return refuse("wrong_purpose");
  if (key.kty !== "OKP" || key.crv !== "Ed25519" || typeof key.x !== "string") return refuse("bad_key");
  const publicKey = fromBase64url(key.x);
  const validFromMs = Date.parse(key.valid_from);
  const retiredAtMs = key.retired_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(key.retired_at);
  if (publicKey?.length !== 32 || Number.isNaN(validFromMs) || Number.isNaN(retiredAtMs)) return refuse("bad_key");
  if (atMs < validFromMs) return refuse("not_yet_valid");
  if (atMs >= retiredAtMs) return refuse("retired");
  return { ok: true, key, publicKey };
}

/** Refuses values that signObject would not sign. @throws TypeError for deep nesting and large integers */
function refuseUnpublishable(value: unknown, depth = 0): void {
  if (depth > MAX_DEPTH) throw new TypeError(`nested deeper than ${MAX_DEPTH}`);
  if (Number.isInteger(value) && Math.abs(value as number) > MAX_INTEGER)
    throw new TypeError("an integer past 2^53 - 1");
  if (typeof value !== "object" || value === null) return;
  for (const member of Object.values(value)) refuseUnpublishable(member, depth + 1);
}

/**
 * Returns RFC 8785 bytes as the package `canonicalize` prints them. Signatures are made over the output of our own
 * printer (canonical-text.ts), so a fault of our printer makes verification fail here, instead of going unnoticed.
 * @throws TypeError, Error for an object that has no such bytes
 */
function signedBytes(object: Record<string, unknown>): Uint8Array {
  refuseUnpublishable(object);
  return new TextEncoder().encode(canonicalize(object));
}

/**
 * Checks form, key and time of a signed object, and rebuilds the bytes that were signed: all fields but `signature`.
 */
export function examine(
  jwks: Jwks,
  object: unknown,
  { purpose, at, defaults: defaultMembers }: Expectation,
): Examination {
  if (!isObject(object)) return refuse("malformed");
  const { signature: signatureText, ...signedMembers } = object;
  const { signing_key_id: kid = defaultMembers?.kid, canonicalization = defaultMembers && "RFC8785" } = signedMembers;
  const signedAt = new Date(at).getTime();
  if (typeof signatureText !== "string" || typeof kid !== "string" || Number.isNaN(signedAt))
    return refuse("malformed");
  const signature = fromBase64url(signatureText);
  if (signature?.length !== 64) return refuse("malformed");
  if (canonicalization !== "RFC8785") return refuse("canonicalization");
  const keySearch = findKey(jwks, kid, purpose, signedAt);
  if (!keySearch.ok) return keySearch;
  try {
    return {
      ok: true,
      key: keySearch.key,
      publicKey: keySearch.publicKey,
      bytes: signedBytes(signedMembers),
      signature,
    };
  } catch {
    return refuse("canonicalization");
  }
}

/**
 * Ed25519 verifiers disagree about points with a component of order 2, 4 or 8, and about second encodings of a point.
 * Node checks the equation without the cofactor 8, other verifiers with it. Under a key of small order, signatures
 * verify that were made without a private key. The two functions below refuse all such points.
 */

/**
 * Returns true only if the bytes are the one valid encoding (RFC 8032 section 5.1.3, y below p) of a point in the
 * prime-order group.
 */
export function isTorsionFree(bytes: Uint8Array): boolean {
  try {
    return Point.fromBytes(bytes).isTorsionFree();
  } catch {
    return false;
  }
}

/**
 * Returns true if all verifiers agree about signatures under this public key. Returns false if they may not, and for
 * the neutral point.
 */
export const isUsableKey = (publicKey: Uint8Array): boolean =>
  isTorsionFree(publicKey) && !Point.fromBytes(publicKey).is0();
