/**
 * Extracts text, headings, tables and links from PDF, with PDF.js. A PDF holds positions of letters and rarely structure, so
 * lines, headings and tables are recognised by position and size. Scanned pages hold no text and are not read.
 */
import { getDocumentProxy } from "unpdf";
import { Bounded, brief, clean, countOf, cutTo, flat, linkOf, PastBound, Unreadable, withinLimits } from "./bounds.mjs";

/** Gap between words, gap between columns, and step to a new line, in multiples of the font size. */
const WORD_GAP = 0.15;
const COLUMN_GAP = 1.5;
const LINE_STEP = 0.5;
/** Largest step between lines of one paragraph, in multiples of the font size. */
const PARAGRAPH_STEP = 1.7;
/** Smallest size of a heading relative to the body text, and its most characters. */
const HEADING_SIZE = 1.15;
const HEADING_CHARS = 200;

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

/** Reports whether two lines are rows of one table: all their cells are aligned at the left or right edge. */
function isAligned(a, b) {
  if (a.cells.length !== b.cells.length) return false;
  const slack = Math.max(a.size, b.size);
  return a.cells.every(({ left, right }, i) => {
    const other = b.cells[i];
    return Math.abs(left - other.left) <= slack || Math.abs(right - other.right) <= slack;
  });
}

function tablesOn(lines, page) {
  const tables = [];
  let rows = [];
  const end = () => {
    if (rows.length > 1) {
      const cells = rows.map((line) => line.cells.map(({ text }) => flat(text)));
      tables.push({ page, found: "layout", caption: null, header: false, rows: cells });
      for (const line of rows) line.isRow = true;
    }
    rows = [];
  };
  for (const line of lines) {
    if (rows.length > 0 && !isAligned(rows.at(-1), line)) end();
    if (line.cells.length > 1) rows.push(line);
  }
  end();
  return tables;
}

/** Returns the links of a page with the text inside their rectangles. */
async function linksOn(page, items, number, limits) {
  const links = [];
  for (const { subtype, url, unsafeUrl, rect } of await page.getAnnotations({ intent: "display" })) {
    if (subtype !== "Link" || !Array.isArray(rect)) continue;
    const href = linkOf(String(url ?? unsafeUrl ?? ""), undefined, limits.urlChars);
    if (href === null) continue;
    const [left, bottom, right, top] = rect;
    const within = items.filter(({ x, y, width, size }) => {
      const middle = { x: x + width / 2, y: y + size / 3 };
      return middle.x >= left && middle.x <= right && middle.y >= bottom && middle.y <= top;
    });
    const words = within.map(({ text }) => text).join(" ");
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

/** Builds the text, with an empty line between paragraphs, and its headings. Adjacent lines of one heading size are joined. */
function textOf(pages, limits) {
  const levels = headingSizes(pages);
  const headings = new Bounded(limits.headings);
  const parts = [];
  let length = 0;
  let last = null;
  const put = (text) => {
    parts.push(text);
    length += text.length;
  };
  for (const { lines, number } of pages) {
    last = null;
    for (const [i, line] of lines.entries()) {
      const words = wordsOf(line);
      const level = !line.isRow && words.length <= HEADING_CHARS ? (levels.get(sizeOf(line)) ?? null) : null;
      const begins = i === 0 || (last?.level ?? null) !== level || isApart(line, lines[i - 1]);
      if (length > 0) put(begins ? "\n\n" : "\n");
      if (level !== null && last?.level === level) last.text = cutTo(`${last.text} ${flat(words)}`, 300);
      else if (level !== null) headings.push({ level, text: cutTo(flat(words), 300), offset: length, page: number });
      last = level === null ? null : headings.list.at(-1);
      put(words);
    }
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
  const found = [];
  for (let number = 1; number <= document.numPages; number++) {
    const page = await document.getPage(number).catch((error) => {
      throw new Unreadable(`page ${number} cannot be read: ${String(error?.message).slice(0, 120)}`);
    });
    const items = await itemsOf(page, counted, limits);
    const lines = linesOf(items);
    found.push(...tablesOn(lines, number));
    pages.push({ lines, number });
    for (const link of await linksOn(page, items, number, limits)) links.push(link);
    page.cleanup();
  }
  const { whole, headings } = textOf(pages, limits);
  if (whole.trim() === "") throw new Unreadable("there is no text in it; scanned pages are pictures, and are not read");
  const metadata = await metadataOf(document);
  return { part: "whole", metadata, ...withinLimits({ whole, headings, tables: found, links }, limits) };
}
