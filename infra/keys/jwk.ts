/**
 * What a key may sign. cards: cards, manifests, index lists, keys documents, notices. answers: answers to checks and
 * exposure reports, challenges, notices, the agent card. log: checkpoints. witness: cosignatures.
 */
export const PURPOSES = ["cards", "answers", "log", "witness"] as const;

export type Purpose = (typeof PURPOSES)[number];

/** A published public key: RFC 7517, the OKP members of RFC 8037, purpose and validity. Times are ISO 8601 UTC. */
export interface PublicJwk {
  kty: "OKP";
  crv: "Ed25519";
  /** The 32 bytes of the public key, base64url without padding. */
  x: string;
  /** RFC 7638 thumbprint of the key. */
  kid: string;
  use: "sig";
  /**
   * `EdDSA` (RFC 8037). Older documents of this service hold the newer name `Ed25519` (RFC 9864), which some
   * libraries do not know and refuse.
   */
  alg: "EdDSA" | "Ed25519";
  purpose: Purpose;
  valid_from: string;
  /** End of validity, exclusive: a signature made at or after this time is not valid. */
  retired_at?: string;
}

/** The keys document: all keys, including retired ones. */
export interface Jwks {
  keys: PublicJwk[];
}

/** Returns the text that RFC 7638 section 3 hashes for an OKP key: the required members, in order, without spaces. */
export const thumbprintText = (x: string): string => `{"crv":"Ed25519","kty":"OKP","x":"${x}"}`;

/**
 * Decodes base64url without padding. Null when re-encoding the bytes gives another text (RFC 4648 section 3.5);
 * otherwise one signature could be written as two texts.
 */
export function fromBase64url(text: string): Uint8Array | null {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return null;
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return toBase64url(bytes) === text ? bytes : null;
}

/**
 * Encodes base64url without padding (RFC 4648 section 5), without Node's API. Only for short data (keys, signatures,
 * hashes): every byte becomes an argument of one call.
 */
export function toBase64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
