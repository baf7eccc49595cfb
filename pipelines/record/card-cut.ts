/**
 * Cuts the card (an endpoint's signed grade), and the bytes that its signature covers, out of a grade leaf (the entry
 * of the public Merkle log that holds the card). The leaf is in RFC 8785 form, so nothing has to be parsed and
 * printed again.
 */

/** One Ed25519 signature to verify. The public key is 32 bytes from a stranger, which may be no valid key. */
interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** A validated key that signs cards, and the time in which it is valid, ms since 1970; `until` is exclusive. */
export interface CardKey {
  publicKey: Uint8Array;
  from: number;
  until: number;
}

const CARD_START = Buffer.from('"card":{');
const CARD_END = Buffer.from('},"day":');

/** Finds start and end of the card within a grade leaf; null if the bytes are no grade leaf in RFC 8785 form. */
function findCardSpan(entry: Buffer): { start: number; end: number } | null {
  // Quotation marks inside a JSON text are escaped, so these byte sequences can only be names of members.
  const start = entry.indexOf(CARD_START) + CARD_START.length - 1;
  const end = entry.lastIndexOf(CARD_END) + 1;
  return start >= CARD_START.length && end > start ? { start, end } : null;
}

/** Returns the card's text in a grade leaf; null if the bytes are no grade leaf in RFC 8785 form. */
export function cardTextOf(entry: Buffer): string | null {
  const span = findCardSpan(entry);
  return span && entry.toString("utf8", span.start, span.end);
}

/**
 * Returns the signature of a card and the bytes that it covers. null if the card cannot be cut out; then the caller has
 * to parse and print it.
 * @param keyOf finds a validated key by its key id (`signing_key_id`)
 */
export function signedBytesOf(
  entry: Buffer,
  card: unknown,
  keyOf: (kid: string) => CardKey | null,
): SignedBytes | null {
  const {
    signature: signatureText,
    signing_key_id: kid,
    computed_at: computedAt,
    canonicalization,
  } = (card ?? {}) as Record<string, unknown>;
  if (typeof signatureText !== "string" || typeof kid !== "string" || canonicalization !== "RFC8785") return null;
  const key = keyOf(kid);
  const time = Date.parse(String(computedAt));
  if (!key || !(time >= key.from && time < key.until)) return null;
  const signature = Buffer.from(signatureText, "base64url");
  const span = findCardSpan(entry);
  if (signature.length !== 64 || signature.toString("base64url") !== signatureText || !span) return null;
  const { start, end } = span;
  const signatureMember = Buffer.from(`"signature":"${signatureText}",`);
  const memberStart = entry.indexOf(signatureMember, start);
  if (memberStart < 0 || memberStart >= end) return null;
  return {
    publicKey: key.publicKey,
    bytes: Buffer.concat([
      entry.subarray(start, memberStart),
      entry.subarray(memberStart + signatureMember.length, end),
    ]),
    signature,
  };
}
