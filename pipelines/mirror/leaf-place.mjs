/**
 * Kind and index of a leaf, for the threads of segment-threads.ts: plain JavaScript. Nearly all leaves are cards and
 * listings as our own publisher prints them; those are told by their form, which is strict JSON, and every other leaf is
 * parsed.
 */
import { cardSpan } from "../record/card-cut.mjs";

/** JSON without escapes: a text, a whole number, a value without members. */
const TEXT = String.raw`"[^"\\\x00-\x1f]*"`;
const NUMBER = String.raw`(?:0|[1-9]\d{0,14})`;
const FLAT = String.raw`(?:${TEXT}|${NUMBER}|true|false|null|\[(?:${TEXT}(?:,${TEXT})*)?\])`;
/** A member that is neither of the two that are asked for. */
const MEMBER = `"(?!index"|kind")[a-z_]+":${FLAT}`;

/** A leaf without nested members, of a kind that nobody has to follow. */
const FLAT_LEAF = new RegExp(
  String.raw`^\{(?:${MEMBER},)*"index":(${NUMBER}),"kind":"((?!keys"|index"|evidence"|archive")[a-z]+)"(?:,${MEMBER})*\}$`,
);

/** What stands before and behind the card in a grade leaf. */
const BEFORE_CARD = new RegExp(String.raw`^\{"at":${TEXT},"card":\{`);
const BEHIND_CARD = new RegExp(
  String.raw`\},"day":${TEXT},"headline":(?:true|false),"index":(${NUMBER}),` +
    String.raw`"inputs":\{"digest":${TEXT},"kin":${TEXT},"positions":\{(?:${TEXT}:${NUMBER}(?:,${TEXT}:${NUMBER})*)?\}\},` +
    String.raw`"kind":"grade","raw_band":${TEXT},"seq":${NUMBER},"why":${TEXT}\}$`,
  "y",
);
const DAY = '},"day":"';
/** Where `"card"` begins behind a time of 24 characters, and its third letter: a listing has another there. */
const CARD_AT = 36;
const CARD_LETTER = 0x72;
const HEAD_BYTES = 64;
const TAIL_BYTES = 640;

/** @returns kind and index, or nothing where the leaf is no JSON object */
export function placeOf(window, start, end) {
  return quickPlaceOf(window, start, end) ?? parsedPlaceOf(window.subarray(start, end));
}

/** The same for a leaf of one of the two forms; null for any other. */
export function quickPlaceOf(window, start, end) {
  if (window[start + CARD_AT] !== CARD_LETTER) {
    const flat = FLAT_LEAF.exec(window.latin1Slice(start, end));
    return flat && { kind: flat[2], index: Number(flat[1]) };
  }
  const tail = window.latin1Slice(Math.max(start, end - TAIL_BYTES), end);
  BEHIND_CARD.lastIndex = tail.lastIndexOf(DAY);
  const behind = BEHIND_CARD.lastIndex >= 0 ? BEHIND_CARD.exec(tail) : null;
  if (!behind || !BEFORE_CARD.test(window.latin1Slice(start, Math.min(end, start + HEAD_BYTES)))) return null;
  return { kind: "grade", index: Number(behind[1]) };
}

/**
 * Of a card's leaf only what stands behind the card is read: JSON takes the last of two members of one name, so no card
 * can say otherwise; what is in the card is for its signature to prove.
 */
export function parsedPlaceOf(entry) {
  const span = entry.indexOf('"card":{') > 0 ? cardSpan(entry) : null;
  const behind = span && parsed(`{${entry.toString("utf8", span.end + 1)}`);
  if (behind?.kind === "grade" && Number.isInteger(behind.index)) return behind;
  return parsed(entry.toString("utf8")) ?? {};
}

/** The value, or null when the text is no JSON. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
