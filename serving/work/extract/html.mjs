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

  get length() {
    return this.#length;
  }

  apart(gap) {
    if (gap > this.#gap) this.#gap = gap;
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
  enter(tag) {
    if (tag === "TABLE") this.#open.push({ rows: [], cell: null, isHead: true, caption: null });
    const table = this.#open.at(-1);
    if (!table) return;
    if (tag === "TR") table.rows.push([]);
    if (CELLS.has(tag) || tag === "CAPTION") table.cell = [];
    if (tag === "TD" && table.rows.length <= 1) table.isHead = false;
  }

  leave(tag) {
    const table = this.#open.at(-1);
    if (!table) return;
    if (CELLS.has(tag) && table.cell) {
      if (table.rows.length === 0) table.rows.push([]);
      table.rows.at(-1).push(flat(table.cell.join("")));
      table.cell = null;
    }
    if (tag === "CAPTION" && table.cell) {
      table.caption = brief(table.cell.join(""));
      table.cell = null;
    }
    if (tag === "TABLE") this.#close(this.#open.pop());
  }

  #close({ rows, caption, isHead }) {
    const full = rows.filter((row) => row.length > 0);
    if (full.length === 0 || (full.length === 1 && full[0].length === 1)) return;
    this.tables.push({ page: null, found: "markup", caption, header: isHead, rows: full });
  }
}

/** Walks a tree without recursion, since its depth is untrusted. @throws PastBound */
function walk(root, limits) {
  const page = new Page();
  const depth = { now: 0, pre: 0 };
  const visit = (node) => {
    if (node.nodeType === TEXT) page.add(clean(node.nodeValue), depth.pre > 0);
    if (node.nodeType !== ELEMENT) return null;
    page.elements += 1;
    const tag = node.localName.toUpperCase();
    if (SKIPPED.has(tag) || isHidden(node)) return null;
    page.apart(gapOf(tag));
    page.enter(tag);
    if (tag === "PRE") depth.pre += 1;
    return { node, tag, start: page.length };
  };
  const leave = ({ node, tag, start }) => {
    if (tag === "PRE") depth.pre -= 1;
    page.leave(tag);
    const level = HEADING.exec(tag)?.[1];
    if (level && page.length > start) page.headings.push({ level: Number(level), start, end: page.length });
    if (tag === "A" && page.length >= start) {
      const href = node.getAttribute("href");
      if (href !== null) page.links.push({ href: href.trim(), start, end: page.length });
    }
    page.apart(gapOf(tag));
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
    if (words !== "") headings.push({ level: one.level, text: cutTo(flat(words), 300), offset, page: null });
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
    links.push({ text: words, url, page: null });
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

/** Returns the main content of a page, or null when Readability finds none. It modifies the document, so it runs last. */
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
 * Parses a document. HTML may omit its outermost elements (section 13.1.2.4), but the parser does not add them and would
 * take the first of several elements as the root, so they are added here.
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
 * @param {{part: "whole" | "main", url: string | null, limits: object}} asked
 * @throws PastBound
 */
export function readHtml(html, { part, url, limits }) {
  const marks = countOf(html, "<") + countOf(html, "&");
  if (marks > limits.markup) {
    throw new PastBound("markup", `${marks} tags and entities, and at most ${limits.markup} are read`);
  }
  const document = documentOf(html);
  const base = baseOf(document, url);
  const metadata = metadataOf(document);
  const page = walk(document.documentElement, limits);
  const whole = answerOf(page, base, limits);
  if (whole.text === "") throw new Unreadable("there is no text in it; scripts of a page are not run");
  const main = part === "main" && page.elements <= limits.mainElements ? mainOf(document) : null;
  const inner = main && answerOf(walk(main.root, limits), base, limits);
  if (!inner?.text) return { part: "whole", metadata, ...whole };
  return { part: "main", metadata: { ...metadata, author: metadata.author ?? main.byline }, ...inner };
}
