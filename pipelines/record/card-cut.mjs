/**
 * Cuts the card, and what was signed, out of a grade leaf in RFC 8785 form, without printing it again.
 */

const CARD = Buffer.from('"card":{');
const AFTER = Buffer.from('},"day":');

/** Where the card lies in a grade leaf in RFC 8785 form, or null where these bytes are none. */
export function cardSpan(entry) {
  // A quotation mark within a text is escaped, so these bytes stand nowhere but between members.
  const start = entry.indexOf(CARD) + CARD.length - 1;
  const end = entry.lastIndexOf(AFTER) + 1;
  return start >= CARD.length && end > start ? { start, end } : null;
}

/** RFC 8785 text of the card in a grade leaf of that form, or null where these bytes are none. */
export function cardTextOf(entry) {
  const span = cardSpan(entry);
  return span && entry.toString("utf8", span.start, span.end);
}

/** What to verify of a card, or null where only the long way tells. `keyOf` finds a judged key by its kid. */
export function signedBytesOf(entry, card, keyOf) {
  const { signature: text, signing_key_id: kid, computed_at: at, canonicalization } = card ?? {};
  if (typeof text !== "string" || typeof kid !== "string" || canonicalization !== "RFC8785") return null;
  const key = keyOf(kid);
  const time = Date.parse(at);
  if (!key || !(time >= key.from && time < key.until)) return null;
  const signature = fromStrictBase64url(text);
  const span = cardSpan(entry);
  if (!signature || !span) return null;
  const { start, end } = span;
  const member = Buffer.from(`"signature":"${text}",`);
  const cut = entry.indexOf(member, start);
  if (cut < 0 || cut >= end) return null;
  const bytes = Buffer.allocUnsafe(end - start - member.length);
  entry.copy(bytes, 0, start, cut);
  entry.copy(bytes, cut - start, cut + member.length, end);
  return { publicKey: key.publicKey, bytes, signature };
}

function fromStrictBase64url(text) {
  const bytes = Buffer.from(text, "base64url");
  return bytes.length === 64 && bytes.toString("base64url") === text ? bytes : null;
}
