/** Extracts text, headings, tables and links from HTML. Scripts, styles and resources are ignored. */
import { Readability } from "@mozilla/readability";
import { parseHTML } from "linkedom";
import { Bounded, brief, clean, countOf, cutTo, flat, linkOf, PastBound, Unreadable, withinLimits } from "./bounds.mjs";

const ELEMENT = 1;
const TEXT = 3;

const names = (text) => new Set(text.split(" "));
/** Elements that are not shown, or are not text. */
const SKIPPED = names(
  "AUDIO BUTTON CANVAS DATALIST EMBED HEAD IFRAME MAP NOSCRIPT OBJECT SCRIPT SELECT STYLE SVG TEMPLATE TEXTAREA TITLE VIDEO",
);
/** Elements that are separated by an empty line, and elements that begin a line. */
const PARAGRAPHS = names("BLOCKQUOTE DL FIGURE H1 H2 H3 H4 H5 H6 HR OL P PRE TABLE UL");
const LINES = names(
  "ADDRESS ARTICLE ASIDE BODY BR CAPTION DD DETAILS DIV DT FIGCAPTION FOOTER FORM HEADER HTML LI MAIN NAV SECTION SUMMARY TBODY TFOOT THEAD TR",
);
const CELLS = names("TD TH");
const HEADING = /^H([1-6])$/;
const HIDING = /(?:display\s*:\s*none|visibility\s*:\s*hidden)/i;

/** Separators between two pieces of text; the widest one requested is used. */
const GAPS = ["", " ", "\t", "\n", "\n\n"];
const SPACE = 1;
const TAB = 2;
const LINE = 3;
const PARAGRAPH = 4;

/** Number of characters of a style attribute that are searched. */
const STYLE_CHARS = 300;

function gapOf(tag) {
  if (PARAGRAPHS.has(tag)) return PARAGRAPH;
  if (LINES.has(tag)) return LINE;
  return CELLS.has(tag) ? TAB : 0;
}

function isHidden(element) {
  if (element.hasAttribute("hidden") || element.getAttribute("aria-hidden") === "true") return true;
  const style = element.getAttribute("style");
  return style !== null && HIDING.test(style.slice(0, STYLE_CHARS));
}

/** Columns or rows that a cell spans; `rowspan="0"` reaches to the end. */
function spanOf(cell, name, most) {
  const span = /^\s*\+?(\d{1,9})/.exec(cell.getAttribute(name) ?? "")?.[1];
  if (span === undefined) return 1;
  if (Number(span) === 0) return name === "rowspan" ? most : 1;
  return Math.min(Number(span), most);
}

/** Builds the text of a page, with the ranges of its headings and links, and its tables. */
class Page {
  elements = 0;
  headings = [];
  links = [];
  tables = [];
  #parts = [];
  #length = 0;
  #gap = 0;
  /** Open tables, innermost last. Text belongs to the innermost table only. */
  #open = [];
  /** Number of the current page; null for a document without pages. */
  number = null;
  #spare;

  /** @param {{cells: number}} limits cells that spans may add */
  constructor({ cells }) {
    this.#spare = cells;
  }

  get length() {
    return this.#length;
  }

  apart(gap) {
    if (gap > this.#gap) this.#gap = gap;
  }

  /** Separates an element from its neighbours; inside of a cell by a line, and not from the cell's own edge. */
  around(tag) {
    const cell = CELLS.has(tag) ? null : this.#open.at(-1)?.cell;
    if (cell?.length === 0) return;
    this.apart(cell && tag !== "TABLE" ? Math.min(gapOf(tag), LINE) : gapOf(tag));
  }

  add(raw, isKept) {
    const text = isKept ? raw.replace(/\t/g, " ") : raw.replace(/\s+/g, " ");
    const body = isKept ? text : text.trim();
    if (body === "" || body === " ") {
      if (text !== "") this.apart(SPACE);
      return;
    }
    if (!isKept && text.startsWith(" ")) this.apart(SPACE);
    const gap = this.#length > 0 ? GAPS[this.#gap] : "";
    this.#gap = 0;
    this.#put(gap);
    this.#put(body);
    this.#open.at(-1)?.cell?.push(gap, body);
    if (!isKept && text.endsWith(" ")) this.apart(SPACE);
  }

  #put(text) {
    if (text === "") return;
    this.#parts.push(text);
    this.#length += text.length;
  }

  text() {
    return this.#parts.join("");
  }

  /** Called at the start of an element; `leave` is called at its end. */
  enter(tag, node) {
    if (tag === "TABLE") {
      this.#open.push({ rows: [], cell: null, isHead: true, caption: null, below: [], page: this.number });
    }
    const table = this.#open.at(-1);
    if (!table) return;
    if (tag === "TR") table.rows.push([]);
    if (CELLS.has(tag) || tag === "CAPTION") table.cell = [];
    if (CELLS.has(tag))
      table.spans = { columns: spanOf(node, "colspan", 1_000), rows: spanOf(node, "rowspan", 65_534) };
    if (tag === "TD" && table.rows.length <= 1) table.isHead = false;
  }

  leave(tag) {
    const table = this.#open.at(-1);
    if (!table) return;
    if (CELLS.has(tag) && table.cell) {
      if (table.rows.length === 0) table.rows.push([]);
      if (table.cell.length > 0) this.#gap = TAB;
      this.#place(table, flat(table.cell.join("")));
      table.cell = null;
    }
    if (tag === "TR") this.#fill(table, table.rows.at(-1));
    if (tag === "CAPTION" && table.cell) {
      table.caption = brief(table.cell.join(""));
      table.cell = null;
    }
    if (tag === "TABLE") this.#close(this.#open.pop());
  }

  /** Fills the columns of a row that cells of rows above reach down to. */
  #fill(table, row) {
    while (row && table.below[row.length]?.rows > 0) {
      const above = table.below[row.length];
      if (this.#spare-- <= 0) return;
      above.rows -= 1;
      row.push(above.text);
    }
  }

  /**
   * Places a cell in the next free columns of its row, once for each column and row that it spans (HTML section
   * 4.9.12).
   */
  #place(table, text) {
    const row = table.rows.at(-1);
    this.#fill(table, row);
    const { columns, rows } = table.spans;
    for (let i = 0; i < columns; i++) {
      if (i > 0 && this.#spare-- <= 0) return;
      if (rows > 1) table.below[row.length] = { text, rows: rows - 1 };
      row.push(text);
    }
  }

  #close({ rows, caption, isHead, page }) {
    const full = rows.filter((row) => row.length > 0);
    if (full.length === 0 || (full.length === 1 && full[0].length === 1)) return;
    this.tables.push({ page, found: "markup", caption, header: isHead, rows: full });
  }
}

/** Walks a tree without recursion, since its depth is untrusted. @throws PastBound */
function walk(root, limits, isPaged) {
  const page = new Page(limits);
  const depth = { now: 0, pre: 0 };
  const visit = (node) => {
    if (node.nodeType === TEXT) page.add(clean(node.nodeValue), depth.pre > 0);
    if (node.nodeType !== ELEMENT) return null;
    page.elements += 1;
    const tag = node.localName.toUpperCase();
    if (SKIPPED.has(tag) || isHidden(node)) return null;
    page.around(tag);
    if (isPaged && tag === "SECTION") page.number = Number(node.getAttribute("data-page"));
    page.enter(tag, node);
    if (tag === "PRE") depth.pre += 1;
    return { node, tag, start: page.length };
  };
  const leave = ({ node, tag, start }) => {
    if (tag === "PRE") depth.pre -= 1;
    page.leave(tag);
    const level = HEADING.exec(tag)?.[1];
    if (level && page.length > start) {
      page.headings.push({ level: Number(level), start, end: page.length, page: page.number });
    }
    if (tag === "A" && page.length >= start) {
      const href = node.getAttribute("href");
      if (href !== null) page.links.push({ href: href.trim(), start, end: page.length, page: page.number });
    }
    page.around(tag);
  };
  const path = [];
  let node = root;
  const next = (one) => (one === root ? null : one.nextSibling);
  while (node || path.length > 0) {
    if (!node) {
      const above = path.pop();
      leave(above);
      node = next(above.node);
      continue;
    }
    const entered = visit(node);
    if (!entered) {
      node = next(node);
      continue;
    }
    path.push(entered);
    if (path.length > limits.depth) throw new PastBound("depth", `elements nest deeper than ${limits.depth}`);
    node = node.firstChild;
  }
  return page;
}

/** Returns the text of a range, trimmed, and the offset of its first character. */
function rangeOf(text, { start, end }) {
  const raw = text.slice(start, end);
  const lead = raw.length - raw.trimStart().length;
  return { offset: start + lead, words: raw.trim() };
}

function headingsOf(page, text, limits) {
  const headings = new Bounded(limits.headings);
  for (const one of page.headings) {
    const { offset, words } = rangeOf(text, one);
    if (words !== "") headings.push({ level: one.level, text: cutTo(flat(words), 300), offset, page: one.page });
  }
  return headings;
}

function linksOf(page, text, base, limits) {
  const links = new Bounded(limits.links);
  const seen = new Set();
  for (const one of page.links) {
    const url = linkOf(one.href, base, limits.urlChars);
    if (url === null) continue;
    const words = cutTo(flat(text.slice(one.start, Math.min(one.end, one.start + 1_000))), 200);
    const key = `${url} ${words}`;
    if (seen.has(key)) continue;
    seen.add(key);
    links.push({ text: words, url, page: one.page });
  }
  return links;
}

function answerOf(page, base, limits) {
  const whole = page.text();
  const headings = headingsOf(page, whole, limits);
  const links = linksOf(page, whole, base, limits);
  return withinLimits({ whole, headings, tables: page.tables, links }, limits);
}

const metaOf = (document, ...keys) => {
  for (const key of keys) {
    const found = document.querySelector(`meta[name="${key}"],meta[property="${key}"],meta[http-equiv="${key}"]`);
    const content = brief(found?.getAttribute("content") ?? null);
    if (content !== null) return content;
  }
  return null;
};

function metadataOf(document) {
  const title = [...document.querySelectorAll("title")].find((one) => one.closest("svg") === null);
  return {
    title: brief(title?.textContent) ?? metaOf(document, "og:title"),
    author: metaOf(document, "author", "article:author", "dc.creator"),
    language: brief(document.documentElement?.getAttribute("lang")) ?? metaOf(document, "content-language"),
    description: metaOf(document, "description", "og:description"),
    published: metaOf(document, "article:published_time", "date", "dc.date"),
    pages: null,
  };
}

/** Returns the base of relative links: `<base>`, else the page's url. */
function baseOf(document, url) {
  const href = document.querySelector("base")?.getAttribute("href");
  return (href && linkOf(href, url ?? undefined, 2_048)) ?? url ?? undefined;
}

/**
 * Returns the main content of a page, or null when Readability finds none. It modifies the document, so it runs last.
 */
function mainOf(document) {
  try {
    const reader = new Readability(document, {
      disableJSONLD: true,
      keepClasses: true,
      serializer: (element) => element,
    });
    const article = reader.parse();
    return article?.content ? { root: article.content, byline: brief(article.byline) } : null;
  } catch {
    // On failure the whole page is returned.
    return null;
  }
}

/**
 * Parses a document. HTML may omit its outermost elements (section 13.1.2.4), but the parser does not add them and
 * would take the first of several elements as the root, so they are added here.
 */
function documentOf(html) {
  const { document } = parseHTML(/<html[\s>]/i.test(html) ? html : `<html><body>${html}</body></html>`);
  const root = document.documentElement;
  if (root.querySelector("body")) return document;
  const all = [...root.childNodes].filter(({ localName }) => localName !== "head");
  for (const node of all) document.body.appendChild(node);
  return document;
}

/**
 * Extracts an HTML document. Tags and entities are counted before parsing, since each becomes one or two nodes.
 * @param {string} html
 * @param {{part: "whole" | "main", url: string | null, limits: object, isPaged?: boolean}} asked `isPaged`: each page
 * is a section that has its number as `data-page`
 * @throws PastBound, Unreadable
 */
export function readHtml(html, { part, url, limits, isPaged = false }) {
  const marks = countOf(html, "<") + countOf(html, "&");
  if (marks > limits.markup) {
    throw new PastBound("markup", `${marks} tags and entities, and at most ${limits.markup} are read`);
  }
  const document = documentOf(html);
  const base = baseOf(document, url);
  const metadata = metadataOf(document);
  const page = walk(document.documentElement, limits, isPaged);
  const whole = answerOf(page, base, limits);
  if (whole.text === "") throw new Unreadable("there is no text in it; scripts of a page are not run");
  const main = part === "main" && page.elements <= limits.mainElements ? mainOf(document) : null;
  const inner = main && answerOf(walk(main.root, limits, isPaged), base, limits);
  if (!inner?.text) return { part: "whole", metadata, ...whole };
  return { part: "main", metadata: { ...metadata, author: metadata.author ?? main.byline }, ...inner };
}
