/**
 * What a terminal, or whoever reads one, would take for more than text: controls of C0 and C1 (escape sequences, a line that
 * is written over), what turns the direction of writing, what cannot be seen, ends of lines and paragraphs of Unicode, and
 * halves of characters.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}]/gu;
const BLANK = /[\t\n\v\f\r\u0085\u2028\u2029]+/g;

/** One line of text that strangers had a part in: ends of lines become a blank, whatever else is no text a question mark. */
export const printable = (text: string): string => text.replace(BLANK, " ").replace(UNPRINTABLE, "?");

/** As {@link UNPRINTABLE}, without what JSON lets stand between its values. */
const UNPRINTABLE_IN_JSON = /[\p{Cf}\p{Zl}\p{Zp}\u007f-\u009f]/gu;

/**
 * JSON text for a terminal: the same value. JSON.stringify escapes C0 controls and halves of characters alone; the others stand
 * in no place but strings, where an escape means the same.
 */
export const printableJson = (json: string): string =>
  json.replace(UNPRINTABLE_IN_JSON, (one) =>
    [...Array(one.length).keys()].map((i) => `\\u${one.charCodeAt(i).toString(16).padStart(4, "0")}`).join(""),
  );
