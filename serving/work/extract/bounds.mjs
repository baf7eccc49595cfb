/** What readers of documents share: how a bound is exceeded, and how text is made fit to be answered. */

/** A document went past a bound. `says` names the bound and, where it is known, by how much. */
export class PastBound extends Error {
  /** @param {string} bound name in the table of limits @param {string} says */
  constructor(bound, says) {
    super(says);
    this.bound = bound;
  }
}

/** A document that cannot be read for what it is, which is nobody's bound: damaged, locked, of another kind. */
export class Unreadable extends Error {}

/** Control characters but tab and line end, which no text of a document means. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is looked for.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Text that any JSON parser and any canonical form takes: no control characters, no halves of surrogate pairs. */
export const clean = (text) => text.replace(CONTROLS, "").toWellFormed();

/** At most `most` characters (UTF-16 units), never half of a pair. */
export function cutTo(text, most) {
  if (text.length <= most) return text;
  const isHalf = (text.charCodeAt(most - 1) & 0xfc00) === 0xd800;
  return text.slice(0, isHalf ? most - 1 : most);
}

/** White space of any kind as one space, and none at the ends. */
export const flat = (text) => text.replace(/\s+/g, " ").trim();

/** A short text of metadata, or null where there is none. */
export function brief(text, most = 500) {
  if (typeof text !== "string") return null;
  const one = cutTo(flat(clean(text.slice(0, 4 * most))), most);
  return one === "" ? null : one;
}

/** An absolute address that a reader may follow, or null: a script, a file or a fragment is none. */
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

/** A list that takes so many things and says when it was given more. */
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

/** How often a mark stands in a text or in bytes. */
export function countOf(whole, mark) {
  let count = 0;
  for (let at = whole.indexOf(mark); at !== -1; at = whole.indexOf(mark, at + mark.length)) count += 1;
  return count;
}

/** Tables until their cells, or the characters in them, are as many as an answer holds. */
function tablesOf(all, limits) {
  const tables = new Bounded(limits.tables);
  let cells = 0;
  let chars = 0;
  for (const table of all) {
    for (const row of table.rows) {
      cells += row.length;
      for (const cell of row) chars += cell.length;
    }
    if (cells > limits.cells || chars > limits.cellChars) tables.isCut = true;
    if (tables.isCut) break;
    tables.push(table);
  }
  return tables;
}

/**
 * What was found, as much of it as an answer holds, and the names of the lists that hold more.
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
