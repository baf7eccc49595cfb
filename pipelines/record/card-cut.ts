/** Cuts the card, and what was signed, out of a grade leaf in RFC 8785 form, without printing it again. */

/** One signature to verify: Ed25519 over `bytes` under 32 bytes of a stranger's, which may be no key at all. */
interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** A validated cards key and its validity; milliseconds since 1970, `until` exclusive. */
export interface Vouching {
  publicKey: Uint8Array;
  from: number;
  until: number;
}

const CARD = Buffer.from('"card":{');
const AFTER = Buffer.from('},"day":');

/** Where the card lies in a grade leaf in RFC 8785 form, or null where these bytes are none. */
function cardSpan(entry: Buffer): { start: number; end: number } | null {
  // A quotation mark within a text is escaped, so these bytes stand nowhere but between members.
  const start = entry.indexOf(CARD) + CARD.length - 1;
  const end = entry.lastIndexOf(AFTER) + 1;
  return start >= CARD.length && end > start ? { start, end } : null;
}

/** RFC 8785 text of the card in a grade leaf of that form, or null where these bytes are none. */
export function cardTextOf(entry: Buffer): string | null {
  const span = cardSpan(entry);
  return span && entry.toString("utf8", span.start, span.end);
}

/** What to verify of a card, or null where only the long way tells. @param keyOf finds a validated key by its kid */
export function signedBytesOf(
  entry: Buffer,
  card: unknown,
  keyOf: (kid: string) => Vouching | null,
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
