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
/** The members before the card in RFC 8785 order: `at` alone. Any other member there could hold a `card` of its own. */
const BEFORE_CARD = /^\{"at":"[^"\\]*",$/;
const CARD_NAME = Buffer.from('"card"');
/**
 * The beginning of an escaped ASCII character. RFC 8785 escapes no letter, but other JSON may escape those of a name.
 */
const ASCII_ESCAPE = Buffer.from("\\u00");

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Returns where the object at `start` ends in a valid JSON text, exclusive; -1 when the text ends within it. */
function endOfObject(text: Buffer, start: number): number {
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    const byte = text[i];
    if (byte === QUOTE) {
      for (i++; i < text.length && text[i] !== QUOTE; i++) if (text[i] === BACKSLASH) i++;
    } else if (byte === OPEN_BRACE) {
      depth++;
    } else if (byte === CLOSE_BRACE) {
      depth--;
      if (depth === 0) return i + 1;
    }
  }
  return -1;
}

/**
 * Finds start and end of the card within a grade leaf, which is a valid JSON text. The bytes there are those from which
 * JSON.parse makes the leaf's member `card`: a leaf may have further members, of which one could have a `card` of its
 * own, and JSON.parse takes the last of several members with one name. null for a leaf where that is not certain.
 */
function findCardSpan(entry: Buffer): { start: number; end: number } | null {
  const nameStart = entry.indexOf(CARD_START);
  if (nameStart < 0 || !BEFORE_CARD.test(entry.toString("latin1", 0, nameStart))) return null;
  const start = nameStart + CARD_START.length - 1;
  const end = endOfObject(entry, start);
  const isOnlyCard = end > 0 && entry.indexOf(CARD_NAME, end) < 0 && entry.indexOf(ASCII_ESCAPE, end) < 0;
  return isOnlyCard ? { start, end } : null;
}

/** Returns the card's text in a grade leaf, which is a valid JSON text; null if the card cannot be cut out. */
export function cardTextOf(entry: Buffer): string | null {
  const span = findCardSpan(entry);
  return span && entry.toString("utf8", span.start, span.end);
}

/**
 * Returns the signature of a card and the bytes that it covers. null if the card cannot be cut out; then the caller has
 * to print it.
 * @param entry a grade leaf, which is a valid JSON text
 * @param card the leaf's member `card`
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
