/** Shared by the readers of documents: errors, decoding and cleaning of text, and bounded lists. */

/** Thrown when a document exceeds a limit. */
export class PastBound extends Error {
  /** @param {string} bound name in the table of limits @param {string} says the message */
  constructor(bound, says) {
    super(says);
    this.bound = bound;
  }
}

/** Thrown when a document is damaged, locked, or has no text. */
export class Unreadable extends Error {}

/** Control characters except tab and line feed. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is looked for.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Removes control characters and lone surrogates, so that any JSON parser and canonical form accepts the text. */
export const clean = (text) => text.replace(CONTROLS, "").toWellFormed();

/** Cuts a text to at most `most` UTF-16 units without splitting a surrogate pair. */
export function cutTo(text, most) {
  if (text.length <= most) return text;
  const isHalf = (text.charCodeAt(most - 1) & 0xfc00) === 0xd800;
  return text.slice(0, isHalf ? most - 1 : most);
}

/** Collapses white space to single spaces and trims the ends. */
export const flat = (text) => text.replace(/\s+/g, " ").trim();

/** Cleans and shortens a text of metadata; null when it is empty or not a string. */
export function brief(text, most = 500) {
  if (typeof text !== "string") return null;
  const one = cutTo(flat(clean(text.slice(0, 4 * most))), most);
  return one === "" ? null : one;
}

/** Resolves a link; null unless it is http, https or mailto and at most `most` characters long. */
export function linkOf(href, base, most) {
  if (href.length > most || href.startsWith("#")) return null;
  let url;
  try {
    url = new URL(href, base);
  } catch {
    return null;
  }
  if (!/^(?:https?|mailto):$/.test(url.protocol)) return null;
  return url.href.length > most ? null : url.href;
}

/** A list of at most `most` items; `isCut` tells whether more were pushed. */
export class Bounded {
  list = [];
  isCut = false;
  #most;

  constructor(most) {
    this.#most = most;
  }

  push(one) {
    if (this.list.length < this.#most) this.list.push(one);
    else this.isCut = true;
  }
}

/** Counts the occurrences of a mark in a text or in bytes. */
export function countOf(whole, mark) {
  let count = 0;
  for (let at = whole.indexOf(mark); at !== -1; at = whole.indexOf(mark, at + mark.length)) count += 1;
  return count;
}

/**
 * Collects tables until the limits of tables, cells or their characters are reached; the last one is cut after a row.
 */
function tablesOf(all, limits) {
  const tables = new Bounded(limits.tables);
  let cells = 0;
  let chars = 0;
  for (const table of all) {
    const end = table.rows.findIndex((row) => {
      cells += row.length;
      for (const cell of row) chars += cell.length;
      return cells > limits.cells || chars > limits.cellChars;
    });
    if (end === -1) tables.push(table);
    else if (end > 0) tables.push({ ...table, rows: table.rows.slice(0, end) });
    if (end !== -1) tables.isCut = true;
    if (tables.isCut) break;
  }
  return tables;
}

/**
 * Match the letters before a hyphen at the end of a line, and the rest of the word at the beginning of the next line.
 */
const BROKEN = /(\p{L}{2,64})[-\u00ad\u2010]$/u;
const REST = /^(\p{Ll}[\p{L}\p{M}]{0,63})(\S{0,40})(?:\s+|$)/u;

/**
 * Returns a function that joins a word which is broken between two lines, so that the whole word ends the first line.
 * It returns the two new lines, or null if no word is broken. A hyphen stays if the text has the word with it
 * elsewhere, and not without it ("well-known").
 * @param {string} text all lines
 * @returns {(above: string, below: string) => [string, string] | null}
 */
export function menderOf(text) {
  const words = new Set(text.match(/\p{L}{2,64}(?:-\p{L}{1,64})?/gu) ?? []);
  return (above, below) => {
    const start = BROKEN.exec(above.slice(-70))?.[1];
    const rest = start === undefined ? null : REST.exec(below.slice(0, 120));
    if (!rest) return null;
    const isCompound = words.has(`${start}-${rest[1]}`) && !words.has(start + rest[1]);
    const whole = `${above.slice(0, -1)}${isCompound ? "-" : ""}${rest[1]}${rest[2]}`;
    return [whole, below.slice(rest[0].length)];
  };
}

/**
 * Cuts what was found to the limits of an answer; `cut` names the parts that were cut.
 * @param {{whole: string, headings: Bounded, tables: object[], links: Bounded}} found
 */
export function withinLimits({ whole, headings, tables: all, links }, limits) {
  const text = cutTo(whole, limits.textChars);
  const kept = headings.list.filter(({ offset }) => offset < text.length);
  const tables = tablesOf(all, limits);
  const isCut = {
    text: text.length < whole.length,
    headings: headings.isCut || kept.length < headings.list.length,
    tables: tables.isCut,
    links: links.isCut,
  };
  const cut = Object.keys(isCut).filter((name) => isCut[name]);
  return { text, headings: kept, tables: tables.list, links: links.list, cut };
}

/** Bytes at the beginning of a page in which its charset is looked for. */
const CHARSET_HEAD_BYTES = 1_024;

/** Returns the charset of a byte order mark, else of the media type, else of a meta element; null without any. */
function statedCharset(bytes, type) {
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
  const head = bytes.toString("latin1", 0, CHARSET_HEAD_BYTES);
  const declared =
    /;\s*charset\s*=\s*"?([\w:.-]{1,40})/i.exec(type) ??
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w:.-]{1,40})/i.exec(head);
  return declared ? declared[1].toLowerCase() : null;
}

/** Returns the stated charset, or utf-8. */
export const charsetOf = (bytes, type) => statedCharset(bytes, type) ?? "utf-8";

/**
 * Decodes bytes. Without a stated charset they are UTF-8, or windows-1252 if they are not, as in browsers. An unknown
 * charset is read as UTF-8. Invalid bytes become U+FFFD.
 */
export function decoded(bytes, type = "") {
  const charset = statedCharset(bytes, type);
  try {
    return new TextDecoder(charset ?? "utf-8", { fatal: charset === null }).decode(bytes);
  } catch {
    return new TextDecoder(charset === null ? "windows-1252" : "utf-8").decode(bytes);
  }
}

/** Metadata of a document that has none. */
export const NO_METADATA = {
  title: null,
  author: null,
  language: null,
  description: null,
  published: null,
  pages: null,
};
