/** Cuts the card and its signed bytes out of a grade leaf in RFC 8785 form, without printing them again. */

/** One Ed25519 signature to verify. The public key is 32 bytes of a stranger's, which may be no valid key. */
interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** A validated cards key and the time in which it is valid, ms since 1970; `until` is exclusive. */
export interface CardKey {
  publicKey: Uint8Array;
  from: number;
  until: number;
}

const CARD = Buffer.from('"card":{');
const AFTER = Buffer.from('},"day":');

/** Start and end of the card in a grade leaf in RFC 8785 form, or null where these bytes are no such leaf. */
function cardSpan(entry: Buffer): { start: number; end: number } | null {
  // Quotation marks in a text are escaped, so these byte sequences can only be members.
  const start = entry.indexOf(CARD) + CARD.length - 1;
  const end = entry.lastIndexOf(AFTER) + 1;
  return start >= CARD.length && end > start ? { start, end } : null;
}

/** The card's RFC 8785 text in a grade leaf of that form, or null where these bytes are no such leaf. */
export function cardTextOf(entry: Buffer): string | null {
  const span = cardSpan(entry);
  return span && entry.toString("utf8", span.start, span.end);
}

/**
 * The signature of a card and the bytes that it signs, or null where the card has to be parsed and printed to find
 * them.
 * @param keyOf finds a validated key by its kid
 */
export function signedBytesOf(
  entry: Buffer,
  card: unknown,
  keyOf: (kid: string) => CardKey | null,
): SignedBytes | null {
  const {
    signature: text,
    signing_key_id: kid,
    computed_at: at,
    canonicalization,
  } = (card ?? {}) as Record<string, unknown>;
  if (typeof text !== "string" || typeof kid !== "string" || canonicalization !== "RFC8785") return null;
  const key = keyOf(kid);
  const time = Date.parse(String(at));
  if (!key || !(time >= key.from && time < key.until)) return null;
  const signature = Buffer.from(text, "base64url");
  const span = cardSpan(entry);
  if (signature.length !== 64 || signature.toString("base64url") !== text || !span) return null;
  const { start, end } = span;
  const member = Buffer.from(`"signature":"${text}",`);
  const cut = entry.indexOf(member, start);
  if (cut < 0 || cut >= end) return null;
  return {
    publicKey: key.publicKey,
    bytes: Buffer.concat([entry.subarray(start, cut), entry.subarray(cut + member.length, end)]),
    signature,
  };
}
