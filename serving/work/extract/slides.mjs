/**
 * Extracts PPTX (PresentationML, ECMA-376 part 1 section 19): titles, paragraphs, tables and links of each slide that
 * is shown, in the order of the presentation. Speaker's notes, pictures, charts and hidden slides are left out, and so
 * are the date, the footer and the number of a slide.
 */
import { PastBound } from "./bounds.mjs";
import { readHtml } from "./html.mjs";
import { elementsOf, openPackage } from "./package.mjs";

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (one) => ESCAPES[one]);
const RUNNING = new Set(["dt", "ftr", "hdr", "sldNum"]);
const TITLES = new Set(["title", "ctrTitle"]);

/** Returns the HTML of a run of text, with its link. */
function runOf(run, relations) {
  const text = elementsOf(run, "a:t")
    .map((one) => one.textContent)
    .join("");
  const id = elementsOf(run, "a:hlinkClick")[0]?.getAttribute("r:id");
  const target = relations.get(id);
  return target?.isOutside ? `<a href="${escaped(target.target)}">${escaped(text)}</a>` : escaped(text);
}

/** Returns the HTML of a paragraph. */
function paragraphOf(paragraph, relations) {
  const parts = [...paragraph.children].map((child) => {
    if (child.localName === "a:br") return "<br>";
    const isField = child.localName === "a:fld" && /^slidenum|^datetime/.test(child.getAttribute("type") ?? "");
    return isField || !/^a:(?:r|fld)$/.test(child.localName) ? "" : runOf(child, relations);
  });
  return parts.join("");
}

const paragraphsOf = (node, relations) =>
  elementsOf(node, "a:p")
    .map((one) => paragraphOf(one, relations))
    .filter((html) => html.trim() !== "");

/** Returns the HTML of a table. Cells that a merged cell covers are left out, since that cell has their spans. */
function tableOf(table, relations) {
  const hasHead = /^(?:1|true)$/.test(elementsOf(table, "a:tblPr")[0]?.getAttribute("firstRow") ?? "");
  const rows = elementsOf(table, "a:tr").map((row, i) => {
    const tag = hasHead && i === 0 ? "th" : "td";
    const cells = elementsOf(row, "a:tc").map((cell) => {
      const attribute = (name) => cell.getAttribute(name) ?? "";
      if (/^(?:1|true)$/.test(attribute("hMerge")) || /^(?:1|true)$/.test(attribute("vMerge"))) return "";
      const spans = `colspan="${Number(attribute("gridSpan")) || 1}" rowspan="${Number(attribute("rowSpan")) || 1}"`;
      return `<${tag} ${spans}>${paragraphsOf(cell, relations).join("<br>")}</${tag}>`;
    });
    return `<tr>${cells.join("")}</tr>`;
  });
  return `<table>${rows.join("")}</table>`;
}

/** Returns the HTML of a shape: a title, or paragraphs. */
function shapeOf(shape, relations) {
  const holder = elementsOf(shape, "p:ph")[0]?.getAttribute("type") ?? "";
  if (RUNNING.has(holder)) return "";
  const paragraphs = paragraphsOf(shape, relations);
  if (paragraphs.length === 0) return "";
  if (TITLES.has(holder)) return `<h1>${paragraphs.join(" ")}</h1>`;
  return `<ul>${paragraphs.map((html) => `<li>${html}</li>`).join("")}</ul>`;
}

function slideOf(tree, relations) {
  // An alternative for older programs repeats what stands before it.
  const isOld = (node) => node.closest("mc\\:Fallback") !== null;
  return [...tree.querySelectorAll("p\\:sp, a\\:tbl")]
    .filter((node) => !isOld(node))
    .map((node) => (node.localName === "p:sp" ? shapeOf(node, relations) : tableOf(node, relations)))
    .join("");
}

/**
 * Extracts a PPTX.
 * @param {Buffer} bytes
 * @throws PastBound, Unreadable
 */
export async function readSlides(bytes, asked) {
  const pack = await openPackage(bytes, asked.limits);
  const main = await pack.main();
  const order = elementsOf((await pack.xml(main)) ?? { getElementsByTagName: () => [] }, "p:sldId");
  if (order.length > asked.limits.pages) {
    throw new PastBound("pages", `${order.length} slides, and at most ${asked.limits.pages} are read`);
  }
  const targets = await pack.relations(main);
  const parts = [];
  for (const [i, one] of order.entries()) {
    const name = targets.get(one.getAttribute("r:id"))?.target;
    const tree = name === undefined ? null : await pack.xml(name);
    if (!tree || tree.documentElement.getAttribute("show") === "0") continue;
    parts.push(`<section data-page="${i + 1}">${slideOf(tree, await pack.relations(name))}</section>`);
  }
  const read = readHtml(`<html><body>${parts.join("")}</body></html>`, { ...asked, part: "whole", isPaged: true });
  return { ...read, metadata: { ...(await pack.metadata()), pages: order.length } };
}
