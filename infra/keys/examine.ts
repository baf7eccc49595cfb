import { Point } from "@noble/ed25519";
import canonicalize from "canonicalize";
import { MAX_DEPTH, MAX_INTEGER } from "../canonical-text.ts";
import { fromBase64url, type Jwks, type PublicJwk, type Purpose } from "./jwk.ts";

/**
 * Why the signature of an object is refused.
 * malformed: no object, a field of the wrong kind, a signature that is not 64 bytes in strict base64url, no valid time.
 * canonicalization: not RFC8785, or the object cannot be printed canonically (see {@link signedBytes}).
 * unknown_key: no published key has that id. wrong_purpose: one has, but it signs other things.
 * bad_key: the published key is no Ed25519 key fit for use, or its id is not its thumbprint.
 * not_yet_valid, retired: the key exists, but not at that time. bad_signature: the bytes are not what was signed.
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

export interface Expectation {
  purpose: Purpose;
  /** When it was signed, in the record's time: `computed_at`, `answered_at` or `verified_at`. */
  at: Date | string;
  /**
   * For objects that may leave out `signing_key_id` and `canonicalization` (scorecards): the key id to use when the first is
   * absent; RFC8785 is used when the second is. Fields that are present count.
   */
  unsaid?: { kid: string };
}

/** Result of every check but the curve arithmetic. Both verifiers (verify.ts, portable.ts) use it, so they cannot differ. */
export type Examined =
  | { ok: true; key: PublicJwk; publicKey: Uint8Array; bytes: Uint8Array; signature: Uint8Array }
  | { ok: false; reason: VerifyFault };

const no = (reason: VerifyFault): { ok: false; reason: VerifyFault } => ({ ok: false, reason });

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

type Found = { ok: true; key: PublicJwk; publicKey: Uint8Array } | { ok: false; reason: VerifyFault };

/** The published key `kid` for `purpose`, well formed and valid at `at` (`valid_from` inclusive, `retired_at` not). */
function findKey(jwks: Jwks, kid: string, purpose: Purpose, at: number): Found {
  const keys = isObject(jwks) && Array.isArray(jwks.keys) ? jwks.keys : [];
  const named = keys.filter((key) => isObject(key) && key.kid === kid);
  if (named.length === 0) return no("unknown_key");
  const key = named.find((candidate) => candidate.purpose === purpose);
  if (!key) return no("wrong_purpose");
  if (key.kty !== "OKP" || key.crv !== "Ed25519" || typeof key.x !== "string") return no("bad_key");
  const publicKey = fromBase64url(key.x);
  const from = Date.parse(key.valid_from);
  const until = key.retired_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(key.retired_at);
  if (publicKey?.length !== 32 || Number.isNaN(from) || Number.isNaN(until)) return no("bad_key");
  if (at < from) return no("not_yet_valid");
  if (at >= until) return no("retired");
  return { ok: true, key, publicKey };
}

/** @throws TypeError for nesting and integers that signObject does not sign either */
function refuseUnpublishable(value: unknown, depth = 0): void {
  if (depth > MAX_DEPTH) throw new TypeError(`nested deeper than ${MAX_DEPTH}`);
  if (Number.isInteger(value) && Math.abs(value as number) > MAX_INTEGER)
    throw new TypeError("an integer past 2^53 - 1");
  if (typeof value !== "object" || value === null) return;
  for (const member of Object.values(value)) refuseUnpublishable(member, depth + 1);
}

/**
 * RFC 8785 bytes by the package `canonicalize`. Signatures are made over what our own printer prints (canonical-text.ts), so
 * a fault of that printer fails here and is not repeated.
 * @throws TypeError, Error for an object without such bytes
 */
function signedBytes(object: Record<string, unknown>): Uint8Array {
  refuseUnpublishable(object);
  return new TextEncoder().encode(canonicalize(object));
}

/** Checks form, key and time of a signed object and rebuilds the bytes that were signed: every field but `signature`. */
export function examine(jwks: Jwks, object: unknown, { purpose, at, unsaid }: Expectation): Examined {
  if (!isObject(object)) return no("malformed");
  const { signature: text, ...signed } = object;
  const { signing_key_id: kid = unsaid?.kid, canonicalization = unsaid && "RFC8785" } = signed;
  const time = new Date(at).getTime();
  if (typeof text !== "string" || typeof kid !== "string" || Number.isNaN(time)) return no("malformed");
  const signature = fromBase64url(text);
  if (signature?.length !== 64) return no("malformed");
  if (canonicalization !== "RFC8785") return no("canonicalization");
  const found = findKey(jwks, kid, purpose, time);
  if (!found.ok) return found;
  try {
    return { ok: true, key: found.key, publicKey: found.publicKey, bytes: signedBytes(signed), signature };
  } catch {
    return no("canonicalization");
  }
}

/**
 * Verifiers of Ed25519 disagree on points with a part of order 2, 4 or 8, and on second encodings of a point. Node checks the
 * equation without the cofactor eight, other verifiers with it; under a key of small order, signatures verify that nobody
 * made. The two functions below refuse all such points.
 */

/** Is this the one encoding (RFC 8032 section 5.1.3, y below p) of a point in the group of prime order? */
export function isTorsionFree(bytes: Uint8Array): boolean {
  try {
    return Point.fromBytes(bytes).isTorsionFree();
  } catch {
    return false;
  }
}

/** Do all verifiers give equal answers under this public key? False for the neutral point. */
export const isUsableKey = (publicKey: Uint8Array): boolean =>
  isTorsionFree(publicKey) && !Point.fromBytes(publicKey).is0();
