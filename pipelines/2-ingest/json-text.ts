/** What a scan of a JSON object's text finds; the text must be one that JSON.parse accepted. */
export interface Scanned {
  /** Exact text of the last top-level member with the name, as JSON.parse would take it, or undefined. */
  text: string | undefined;
  /** Deepest nesting, 1 for a flat object. */
  depth: number;
  /** Escapes in a string, or a number with an exponent or hundreds of digits: readers may disagree on those. */
  odd: boolean;
}

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const BACKSLASH = 92;
const MAX_DIGITS = 300;

/** Index of the quote that closes the string opened at `at`. An even run of backslashes before it escapes only itself. */
function closingQuote(text: string, at: number): number {
  for (let from = at + 1; ; ) {
    const quote = text.indexOf('"', from);
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return quote;
    from = quote + 1;
  }
}

/** Index of the number's last character, and whether another reader might not take it for the same double. */
function skipNumber(text: string, at: number): { last: number; odd: boolean } {
  let last = at;
  let exponent = false;
  for (let code = text.charCodeAt(at + 1); isNumberPart(code); code = text.charCodeAt(last + 1)) {
    if (code === 101 || code === 69) exponent = true;
    last++;
  }
  return { last, odd: exponent || last - at > MAX_DIGITS };
}

/** Digits, signs, dot, e and E. */
const isNumberPart = (code: number): boolean =>
  (code >= 48 && code <= 57) || code === 43 || code === 45 || code === 46 || code === 101 || code === 69;

/** Find the top-level member `name` without parsing again: the record keeps the bytes that came, not a reprint of them. */
export function scanMember(text: string, name: string): Scanned {
  const escapes = text.includes("\\");
  let found: string | undefined;
  let odd = escapes;
  let deepest = 0;
  let depth = 0;
  let key = "";
  let start = -1;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = escapes ? closingQuote(text, i) : text.indexOf('"', i + 1);
      if (depth === 1 && start < 0) key = text.slice(i, end + 1);
      i = end;
    } else if (code >= 48 && code <= 57) {
      const number = skipNumber(text, i);
      i = number.last;
      if (number.odd) odd = true;
    } else if (code === 123 || code === 91) {
      if (++depth > deepest) deepest = depth;
    } else if (depth > 1) {
      if (code === 125 || code === 93) depth--;
    } else if (code === COLON) {
      start = i + 1;
    } else if (code === COMMA || code === 125) {
      if (start >= 0 && JSON.parse(key) === name) found = text.slice(start, i).trim();
      start = -1;
    }
  }
  return { text: found, depth: deepest, odd };
}
