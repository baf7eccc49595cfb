/**
 * Characters that can control a terminal or mislead its reader: C0 and C1 controls (escape sequences, carriage return),
 * bidirectional and invisible characters, line and paragraph separators, and lone surrogates.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}]/gu;
const LINE_ENDS_AND_TABS = /[\t\n\v\f\r\u0085\u2028\u2029]+/g;

/**
 * Makes one printable line of untrusted text: a run of line ends or tabs becomes a space, any other unprintable
 * character a question mark.
 */
export const toPrintable = (text: string): string => text.replace(LINE_ENDS_AND_TABS, " ").replace(UNPRINTABLE, "?");

/** Unprintable characters that JSON.stringify does not escape. */
const UNPRINTABLE_IN_JSON = /[\p{Cf}\p{Zl}\p{Zp}\u007f-\u009f]/gu;

/**
 * Escapes the unprintable characters that JSON.stringify leaves in a JSON text. They occur only inside strings, so the
 * value does not change.
 */
export const toPrintableJson = (json: string): string =>
  json.replace(UNPRINTABLE_IN_JSON, (match) =>
    [...Array(match.length).keys()].map((i) => `\\u${match.charCodeAt(i).toString(16).padStart(4, "0")}`).join(""),
  );
