/** Extracts Markdown (CommonMark with tables): it is rendered as HTML, and that is read. */
import MarkdownIt from "markdown-it";
import { brief } from "./bounds.mjs";
import { readHtml } from "./html.mjs";

const FRONT = /^---[ \t]*\r?\n([\s\S]{0,4000}?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/;
const FRONT_LINE = /^([\w-]{1,40}):[ \t]+(?:"([^"\n]*)"|'([^'\n]*)'|([^\n]*?))[ \t]*$/gm;

/** Splits off the block of metadata with which some programs begin a Markdown file, and reads its plain lines. */
function frontOf(text) {
  const block = FRONT.exec(text);
  if (!block) return { said: new Map(), body: text };
  const lines = [...block[1].replaceAll("\r", "").matchAll(FRONT_LINE)];
  const said = new Map(lines.map(([, name, double, single, bare]) => [name.toLowerCase(), double ?? single ?? bare]));
  return { said, body: text.slice(block[0].length) };
}

/**
 * Extracts Markdown. HTML in it is read as HTML, and no script of it runs.
 * @param {string} text
 * @throws PastBound, Unreadable
 */
export function readMarkdown(text, asked) {
  const { said, body } = frontOf(text.replace(/^\ufeff/, ""));
  const html = new MarkdownIt({ html: true }).render(body);
  const read = readHtml(`<html><body>${html}</body></html>`, { ...asked, part: "whole" });
  const of = (...names) => names.map((name) => brief(said.get(name))).find((one) => one !== null) ?? null;
  const metadata = {
    title: of("title") ?? read.metadata.title,
    author: of("author"),
    language: of("lang", "language"),
    description: of("description", "summary"),
    published: of("date"),
    pages: null,
  };
  return { ...read, metadata };
}
