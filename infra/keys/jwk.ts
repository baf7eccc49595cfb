/**
 * What a key may sign: cards (cards, manifests, index lists, notices), answers (check, exposure, challenges, notices,
 * agent card), log (checkpoints), witness (cosignatures).
 */
export const PURPOSES = ["cards", "answers", "log", "witness"] as const;

export type Purpose = (typeof PURPOSES)[number];

/** One public key as published: RFC 7517 with the OKP members of RFC 8037 and our validity. Times are ISO 8601 UTC. */
export interface PublicJwk {
  kty: "OKP";
  crv: "Ed25519";
  /** The 32 bytes of the public key, base64url without padding. */
  x: string;
  /** RFC 7638 thumbprint of the key. */
  kid: string;
  use: "sig";
  alg: "Ed25519";
  purpose: Purpose;
  valid_from: string;
  /** Exclusive: a signature made at this instant is no longer good. */
  retired_at?: string;
}

/** The keys document: every key there ever was, retired ones too. */
export interface Jwks {
  keys: PublicJwk[];
}

/** What RFC 7638 section 3 hashes for an OKP key: the required members, in order, without space. */
export const thumbprintText = (x: string): string => `{"crv":"Ed25519","kty":"OKP","x":"${x}"}`;

/**
 * Bytes of base64url text without padding, or null when the text is not exactly what encoding those bytes gives
 * (RFC 4648 section 3.5): two texts for one signature would be two objects with one meaning.
 */
export function fromBase64url(text: string): Uint8Array | null {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return null;
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return toBase64url(bytes) === text ? bytes : null;
}

/** Base64url without padding (RFC 4648 section 5), with nothing of Node. For keys, signatures and hashes, not bodies. */
export function toBase64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
