/**
 * Extracts text, headings, tables and links from PDF, with PDF.js. A PDF holds positions of letters and rarely
 * structure, so lines, headings and tables are recognised by position and size. The text of scanned pages is recognised
 * in their pictures.
 */
import { getDocumentProxy } from "unpdf";
import {
  Bounded,
  brief,
  clean,
  countOf,
  cutTo,
  flat,
  linkOf,
  menderOf,
  PastBound,
  Unreadable,
  withinLimits,
} from "./bounds.mjs";

/** Gap between words, gap between columns, and step to a new line, in multiples of the font size. */
const WORD_GAP = 0.15;
const COLUMN_GAP = 1;
const LINE_STEP = 0.5;
/** Largest step between a table and a row that continues it, in multiples of the font size. */
const ROW_STEP = 3.5;
/** Matches the bullet or number before an item of a list. */
const LABEL = /^(?:[•–—*◦▪‣·\u25a0-\u25ff\ue000-\uf8ff-]|\(?\w{1,4}[.):])$/u;
/** Largest step between lines of one paragraph, in multiples of the font size. */
const PARAGRAPH_STEP = 1.7;
/** Smallest size of a heading relative to the body text, and its most characters. */
const HEADING_SIZE = 1.15;
const HEADING_CHARS = 200;
/** Part of a page's height, at its top and at its bottom, in which running headers and footers are searched. */
const MARGIN = 0.2;
/**
 * Largest number of lines at the top of a page, and at its bottom, that are examined for running headers and footers.
 */
const MOST_RUNNING = 4;
/** A line is a running header or footer if this share of the pages has it, or this number of pages. */
const RUNNING_SHARE = 0.4;
const RUNNING_PAGES = 5;
/** A line of a number alone, as arabic or roman numeral, or with "page" and "of" around it. */
const PAGE_NUMBER =
  /^\W{0,4}(?:page|seite|p\.)?\s{0,3}(?:\d{1,5}|[ivxlc]{1,8})(?:\s{0,3}(?:\/|of|von)\s{0,3}\d{1,5})?\W{0,4}$/i;

/** Opens a PDF. @throws PastBound, Unreadable */
async function openPdf(bytes, limits) {
  const objects = countOf(bytes, " obj");
  if (objects > limits.objects) {
    throw new PastBound("objects", `${objects} objects, and at most ${limits.objects} are read`);
  }
  try {
    return await getDocumentProxy(new Uint8Array(bytes), {
      verbosity: 0,
      isEvalSupported: false,
      disableFontFace: true,
      useSystemFonts: false,
      enableXfa: false,
      useWorkerFetch: false,
      isOffscreenCanvasSupported: false,
    });
  } catch (error) {
    if (error?.name === "PasswordException") throw new Unreadable("it is locked with a password");
    throw new Unreadable(`it is no PDF that can be read: ${String(error?.message).slice(0, 120)}`);
  }
}

/** Returns the pieces of text of one page in drawing order. @throws PastBound */
async function itemsOf(page, counted, limits) {
  const items = [];
  const reader = page.streamTextContent({ includeMarkedContent: false }).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return items;
    counted.items += value.items.length;
    if (counted.items > limits.items) {
      throw new PastBound("objects", `more than ${limits.items} pieces of text on its pages`);
    }
    for (const { str, transform, width, hasEOL } of value.items) {
      const text = clean(str);
      const size = Math.hypot(transform[2], transform[3]);
      items.push({ text, x: transform[4], y: transform[5], width, size, endsLine: hasEOL });
    }
  }
}

/** Groups items of one height into lines, and splits a line into cells at gaps of a column. */
function linesOf(items) {
  const lines = [];
  let line = null;
  let before = null;
  for (const item of items) {
    const isEmpty = item.text.trim() === "";
    if (!isEmpty) {
      if (!line || Math.abs(item.y - line.y) > LINE_STEP * Math.max(item.size, line.size)) {
        line = { y: item.y, size: item.size, cells: [] };
        lines.push(line);
        before = null;
      }
      place(line, item, before);
      before = item;
    }
    if (item.endsLine) line = null;
  }
  return lines;
}

function place(line, item, before) {
  line.size = Math.max(line.size, item.size);
  const gap = before ? item.x - (before.x + before.width) : 0;
  const cell = line.cells.at(-1);
  // A negative gap occurs in right-to-left text and does not start a column.
  if (!cell || gap > COLUMN_GAP * item.size) {
    line.cells.push({ text: item.text, left: item.x, right: item.x + item.width });
    return;
  }
  const isWord = gap > WORD_GAP * item.size && !cell.text.endsWith(" ") && !item.text.startsWith(" ");
  cell.text += isWord ? ` ${item.text}` : item.text;
  cell.right = item.x + item.width;
}

/**
 * Returns the lines in one margin of a page, from the edge inwards, each with keys that it shares with recurring lines.
 */
function marginOf({ lines, number, view: [, low, , high] }, isTop) {
  const reach = MARGIN * (high - low);
  const near = lines.filter(({ y }) => (isTop ? y > high - reach : y < low + reach));
  near.sort((a, b) => (isTop ? b.y - a.y : a.y - b.y));
  return near.slice(0, MOST_RUNNING).map((line, i) => {
    const words = flat(line.cells.map(({ text }) => text).join(" "));
    const isNumber = PAGE_NUMBER.test(words);
    // The number of a page may stand alone, or at either end of a header that names the chapter.
    const numbers = i === 0 || isNumber ? [/^\d{1,4}(?=\s|$)/.exec(words), /(?<=^|\s)\d{1,4}$/.exec(words)] : [];
    const ahead = numbers.flatMap((found) => (found ? [`ahead ${Number(found[0]) - number}`] : []));
    return { line, isNumber, keys: [`${isTop} ${isNumber ? "#" : words.replace(/\d+/g, "#")}`, ...ahead] };
  });
}

/** Returns the running lines among those of a margin: they recur, and stand apart from what is further in. */
function runningOf(margin, page, recurs) {
  let count = margin.findIndex(({ keys }) => !keys.some(recurs));
  if (count === -1) count = margin.length;
  for (; count > 0; count--) {
    const { line, isNumber } = margin[count - 1];
    const inner = page.lines
      .filter((one) => !margin.slice(0, count).some((dropped) => dropped.line === one))
      .reduce((least, one) => Math.min(least, Math.abs(one.y - line.y)), Number.POSITIVE_INFINITY);
    if (isNumber ? inner > LINE_STEP * line.size : inner > PARAGRAPH_STEP * line.size) break;
  }
  return margin.slice(0, count).map(({ line }) => line);
}

/** Takes running headers, footers and page numbers off the pages. A page that is alone loses its own number only. */
function dropRunning(pages) {
  const margins = pages.map((page) => [marginOf(page, true), marginOf(page, false)]);
  const counts = new Map();
  for (const sides of margins) {
    for (const key of new Set(sides.flat().flatMap((one) => one.keys))) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const enough = Math.min(RUNNING_PAGES, Math.max(2, Math.ceil(RUNNING_SHARE * pages.length)));
  for (const [i, page] of pages.entries()) {
    const isOwnNumber = (key) => pages.length === 1 && key === "false #";
    const recurs = (key) => (counts.get(key) ?? 0) >= enough || isOwnNumber(key);
    const dropped = new Set(margins[i].flatMap((margin) => runningOf(margin, page, recurs)));
    page.lines = page.lines.filter((line) => !dropped.has(line));
  }
}

/** Reports whether two lines are rows of one table: all their cells are aligned at the left or right edge. */
function isAligned(a, b) {
  if (a.cells.length !== b.cells.length) return false;
  const slack = Math.max(a.size, b.size);
  return a.cells.every(({ left, right }, i) => {
    const other = b.cells[i];
    return Math.abs(left - other.left) <= slack || Math.abs(right - other.right) <= slack;
  });
}

/** Columns of aligned rows, each from its leftmost to its rightmost letter. */
const columnsOf = (rows) =>
  rows[0].cells.map((_, i) => ({
    left: Math.min(...rows.map(({ cells }) => cells[i].left)),
    right: Math.max(...rows.map(({ cells }) => cells[i].right)),
  }));

/**
 * Places the cells of a line in the columns of a table; null if they do not fit. If there are as many cells as columns,
 * each must lie between its neighbours; if there are fewer, each must lie over columns of its own, and a cell that
 * spans several is placed in all of them.
 */
function placed(line, columns) {
  const { cells, size } = line;
  if (cells.length < 2 || cells.length > columns.length) return null;
  const slack = size / 4;
  if (cells.length === columns.length) {
    const isBetween = cells.every(
      ({ left, right }, i) =>
        left > (columns[i - 1]?.right ?? Number.NEGATIVE_INFINITY) - slack &&
        right < (columns[i + 1]?.left ?? Number.POSITIVE_INFINITY) + slack,
    );
    return isBetween ? cells.map(({ text }) => flat(text)) : null;
  }
  const row = columns.map(() => "");
  for (const { text, left, right } of cells) {
    const over = columns.flatMap((one, i) => (one.left < right + slack && one.right > left - slack ? [i] : []));
    if (over.length === 0 || over.some((i) => row[i] !== "")) return null;
    for (const i of over) row[i] = flat(text);
  }
  return row;
}

/** Returns the lines beside a table, nearest first, that continue it. */
function besides(lines, at, step, columns) {
  const found = [];
  for (let i = at; lines[i] && !lines[i].isRow; i += step) {
    const from = lines[i - step];
    if (Math.abs(from.y - lines[i].y) > ROW_STEP * Math.max(from.size, lines[i].size)) break;
    const cells = placed(lines[i], columns);
    if (!cells) break;
    found.push({ line: lines[i], cells });
  }
  return found;
}

/** Finds the tables of a page: aligned lines of several cells, and lines beside them that fit their columns. */
function tablesOn(lines, page) {
  const tables = [];
  let from = 0;
  const end = (to) => {
    const rows = lines.slice(from, to);
    if (
      rows.length < 2 ||
      (rows[0].cells.length === 2 && rows.every(({ cells }) => LABEL.test(cells[0].text.trim())))
    ) {
      return;
    }
    const columns = columnsOf(rows);
    const above = besides(lines, from - 1, -1, columns).reverse();
    const below = besides(lines, to, 1, columns);
    const inner = rows.map((line) => ({ line, cells: line.cells.map(({ text }) => flat(text)) }));
    const all = [...above, ...inner, ...below];
    for (const { line } of all) line.isRow = true;
    tables.push({ page, found: "layout", caption: null, header: false, rows: all.map(({ cells }) => cells) });
  };
  for (const [i, line] of lines.entries()) {
    if (i > from && line.cells.length > 1 && lines[i - 1].cells.length > 1 && isAligned(lines[i - 1], line)) continue;
    if (lines[from]?.cells.length > 1 && !lines[from].isRow) end(i);
    from = i;
  }
  if (lines[from]?.cells.length > 1 && !lines[from].isRow) end(lines.length);
  return tables;
}

/** Returns the words of a piece of text between two positions, estimated by letters of equal width. */
function wordsWithin({ text, x, width }, left, right) {
  const letter = width / Math.max(1, text.length);
  const words = [...text.matchAll(/\S+/g)].filter(({ index, 0: word }) => {
    const middle = x + (index + word.length / 2) * letter;
    return middle >= left && middle <= right;
  });
  return words.map(([word]) => word).join(" ");
}

/** Returns the links of a page with the text inside their rectangles. */
async function linksOn(page, items, number, limits) {
  const links = [];
  for (const { subtype, url, unsafeUrl, rect } of await page.getAnnotations({ intent: "display" })) {
    if (subtype !== "Link" || !Array.isArray(rect)) continue;
    const href = linkOf(String(url ?? unsafeUrl ?? ""), undefined, limits.urlChars);
    if (href === null) continue;
    const [left, bottom, right, top] = rect;
    const words = items
      .filter(({ x, y, width, size }) => y + size / 3 >= bottom && y + size / 3 <= top && x < right && x + width > left)
      .map((item) => wordsWithin(item, left, right))
      .join(" ");
    links.push({ text: cutTo(flat(words), 200), url: href, page: number });
  }
  return links;
}

const sizeOf = (line) => Math.round(line.size * 2) / 2;
const wordsOf = (line) => line.cells.map(({ text }) => text.trim()).join(line.isRow ? "\t" : " ");

/** Returns the levels of headings by font size, the largest first: sizes above that of most letters. */
function headingSizes(pages) {
  const letters = new Map();
  for (const { lines } of pages) {
    for (const line of lines) letters.set(sizeOf(line), (letters.get(sizeOf(line)) ?? 0) + wordsOf(line).length);
  }
  const body = [...letters].reduce((most, one) => (one[1] > most[1] ? one : most), [0, -1])[0];
  const larger = [...letters.keys()].filter((size) => size >= HEADING_SIZE * body).sort((a, b) => b - a);
  return new Map(larger.map((size, i) => [size, Math.min(i + 1, 6)]));
}

/** Reports whether a line begins a paragraph. A step upwards leads to the next column. */
function isApart(line, above) {
  const step = above.y - line.y;
  return step < 0 || step > PARAGRAPH_STEP * Math.max(line.size, above.size);
}

/**
 * Returns the lines of all pages with what they are: the level of a heading or null, and whether a paragraph begins.
 */
function entriesOf(pages) {
  const levels = headingSizes(pages);
  const entries = [];
  for (const { lines, number, scan } of pages) {
    let above = null;
    for (const [i, line] of lines.entries()) {
      const words = wordsOf(line);
      const level = !line.isRow && words.length <= HEADING_CHARS ? (levels.get(sizeOf(line)) ?? null) : null;
      const isMoved = i === 0 || above.y < line.y;
      const begins = i === 0 || entries.at(-1).level !== level || isApart(line, above);
      entries.push({ words, level, begins, isMoved, isRow: line.isRow === true, number });
      above = line;
    }
    if (scan) entries.push({ words: scan, level: null, begins: true, isMoved: false, isRow: true, number });
  }
  return entries;
}

/** Joins words that are broken between lines, also from one column or page to the next. Lines may become empty. */
function mend(entries) {
  const join = menderOf(entries.map(({ words }) => words).join("\n"));
  for (const [i, below] of entries.entries()) {
    const above = entries[i - 1];
    if (!above || above.isRow || below.isRow || above.level !== below.level || (below.begins && !below.isMoved))
      continue;
    const joined = join(above.words, below.words);
    if (!joined) continue;
    [above.words, below.words] = joined;
    if (below.level === null) below.begins = false;
  }
}

/**
 * Builds the text, with an empty line between paragraphs, and its headings. Adjacent lines of one heading size are
 * joined.
 */
function textOf(pages, limits) {
  const headings = new Bounded(limits.headings);
  const parts = [];
  let length = 0;
  let last = null;
  const put = (text) => {
    parts.push(text);
    length += text.length;
  };
  const entries = entriesOf(pages);
  mend(entries);
  let page = null;
  for (const { words, level, begins, number } of entries) {
    if (number !== page) last = null;
    page = number;
    if (words === "") continue;
    if (length > 0) put(begins ? "\n\n" : "\n");
    if (level !== null && last?.level === level) last.text = cutTo(`${last.text} ${flat(words)}`, 300);
    else if (level !== null) headings.push({ level, text: cutTo(flat(words), 300), offset: length, page: number });
    last = level === null ? null : headings.list.at(-1);
    put(words);
  }
  return { whole: parts.join(""), headings };
}

/** Returns the day of a PDF date (ISO 32000-1 section 7.9.4) as YYYY-MM-DD, or null. */
function dayOf(text) {
  const found = /^D:(\d{4})(\d\d)(\d\d)/.exec(String(text ?? ""));
  return found ? `${found[1]}-${found[2]}-${found[3]}` : null;
}

async function metadataOf(document) {
  const { info = {} } = await document.getMetadata().catch(() => ({}));
  return {
    title: brief(info.Title),
    author: brief(info.Author),
    language: brief(info.Language),
    description: brief(info.Subject),
    published: dayOf(info.CreationDate),
    pages: document.numPages,
  };
}

/**
 * Recognises the text in the pictures of pages without text.
 * @returns what `readScans` returns; null if no page lacks text
 */
async function recognise(document, pages, limits) {
  const bare = pages.filter(({ lines }) => lines.length === 0).map(({ number }) => number);
  if (bare.length === 0) return null;
  const isAll = bare.length === pages.length;
  const { readScans } = await import("./ocr.mjs");
  const found = await readScans(document, bare, { limits, isAll });
  for (const page of pages) page.scan = found?.texts.get(page.number);
  return found;
}

/**
 * Extracts a PDF.
 * @param {Uint8Array} bytes
 * @throws PastBound, Unreadable
 */
export async function readPdf(bytes, { limits }) {
  const document = await openPdf(bytes, limits);
  if (document.numPages > limits.pages) {
    throw new PastBound("pages", `${document.numPages} pages, and at most ${limits.pages} are read`);
  }
  const counted = { items: 0 };
  const links = new Bounded(limits.links);
  const pages = [];
  for (let number = 1; number <= document.numPages; number++) {
    const page = await document.getPage(number).catch((error) => {
      throw new Unreadable(`page ${number} cannot be read: ${String(error?.message).slice(0, 120)}`);
    });
    const items = await itemsOf(page, counted, limits);
    pages.push({ lines: linesOf(items), number, view: page.view });
    for (const link of await linksOn(page, items, number, limits)) links.push(link);
    page.cleanup();
  }
  const scans = await recognise(document, pages, limits);
  dropRunning(pages);
  const tables = pages.flatMap(({ lines, number }) => tablesOn(lines, number));
  const { whole, headings } = textOf(pages, limits);
  if (whole.trim() === "") throw new Unreadable("there is no text in it");
  const metadata = await metadataOf(document);
  const answer = withinLimits({ whole, headings, tables, links }, limits);
  if (scans?.isCut && !answer.cut.includes("text")) answer.cut.unshift("text");
  return { part: "whole", metadata, recognised: scans?.recognised ?? null, ...answer };
}
