import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { raw } from "hono/html";
import { escapeHtml, page } from "./layout.ts";

export interface Doc {
  type: "html" | "text";
  text: string;
  /** First heading of a page. */
  title?: string;
}

/**
 * The documentation of a folder, read once: `name.md` as a page under `name`, `name.mjs` as plain text under its whole
 * name. No other file of the folder is served, so no path of a request ever reaches the file system.
 */
export function readDocs(dir: string): ReadonlyMap<string, Doc> {
  const docs = new Map<string, Doc>();
  if (!existsSync(dir)) return docs;
  for (const file of readdirSync(dir).sort()) {
    if (!/^[a-z0-9-]+\.(?:md|mjs)$/.test(file)) continue;
    const text = readFileSync(join(dir, file), "utf8");
    if (file.endsWith(".mjs")) docs.set(file, { type: "text", text });
    else
      docs.set(file.slice(0, -3), {
        type: "html",
        title: titleOf(text),
        text: page({ title: titleOf(text), body: raw(renderMarkdown(text)), kind: "doc" }),
      });
  }
  return docs;
}

/**
 * The part of Markdown that our own documents use, as HTML: headings, paragraphs, lists, tables, quotes, fenced code;
 * in a line code, bold, italics and links. Everything is escaped first, and no HTML of the document passes.
 */

/** Anchor of a heading: `## Bad request` -> `bad-request`. */
export const slug = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");

/** Links of ours lead to http(s) addresses, to places on this host or to a page beside this one, never to a script. */
const LINK = /\[([^\]]+)\]\((https?:\/\/[^\s)]+|\/(?!\/)[^\s)]*|#[^\s)]*|[a-z0-9-]+\.md(?:#[^\s)]*)?)\)/g;
/** `name.md`, as it is read in a checkout, is served under `/docs/name`. */
const served = (href: string): string => href.replace(/^([a-z0-9-]+)\.md/, "/docs/$1");

function inline(text: string): string {
  // Code is taken out first, so that nothing in it is read as markup.
  const codes: string[] = [];
  const bare = escapeHtml(text).replace(/`([^`]+)`/g, (_, code: string) => `\u0000${codes.push(code) - 1}\u0000`);
  return (
    bare
      .replace(LINK, (_, label: string, href: string) => `<a href="${served(href)}">${label}</a>`)
      .replace(/\*\*([^*]+)\*\*/g, "<strong>$1</strong>")
      .replace(/(^|[\s(])\*([^*\s][^*]*)\*/g, "$1<em>$2</em>")
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the mark set above; escapeHtml() leaves none of the document's.
      .replace(/\u0000(\d+)\u0000/g, (_, i: string) => `<code>${codes[Number(i)]!}</code>`)
  );
}

const cells = (line: string): string[] =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => inline(cell.trim()));

const isRule = (line: string | undefined): boolean => line !== undefined && /^\s*\|?(?:\s*:?-{3,}:?\s*\|)+/.test(line);

const row = (tag: string, line: string): string =>
  `<tr>${cells(line)
    .map((cell) => `<${tag}${tag === "th" ? ' scope="col"' : ""}>${cell}</${tag}>`)
    .join("")}</tr>`;

const ITEM = /^(\s*)(?:[-*]|\d+\.)\s+(.*)$/;

/** Lines up to the first that does not belong, and how many they were. */
function take(lines: readonly string[], from: number, belongs: (line: string) => boolean): string[] {
  let end = from;
  while (end < lines.length && belongs(lines[end]!)) end++;
  return lines.slice(from, end);
}

const startsBlock = (line: string): boolean => /^\s*$|^#{1,6} |^```|^> /.test(line) || ITEM.test(line);

interface Block {
  html: string;
  lines: number;
}

function fence(lines: readonly string[], at: number): Block {
  const code = take(lines, at + 1, (line) => !line.startsWith("```"));
  return { html: `<pre tabindex="0"><code>${escapeHtml(code.join("\n"))}</code></pre>`, lines: code.length + 2 };
}

function list(lines: readonly string[], at: number): Block {
  const ordered = /^\s*\d/.test(lines[at]!);
  const taken = take(lines, at, (line) => ITEM.test(line) || /^\s{2,}\S/.test(line));
  const items: string[] = [];
  for (const line of taken) {
    const item = ITEM.exec(line);
    if (item) items.push(item[2]!);
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  const tag = ordered ? "ol" : "ul";
  return { html: `<${tag}>${items.map((item) => `<li>${inline(item)}</li>`).join("")}</${tag}>`, lines: taken.length };
}

function table(lines: readonly string[], at: number): Block {
  const rows = take(lines, at + 2, (line) => line.includes("|") && line.trim() !== "");
  const body = rows.map((line) => row("td", line)).join("");
  const html = `<div class="scroll" tabindex="0" role="region" aria-label="table"><table><thead>${row("th", lines[at]!)}</thead><tbody>${body}</tbody></table></div>`;
  return { html, lines: rows.length + 2 };
}

function block(lines: readonly string[], at: number): Block {
  const line = lines[at]!;
  if (line.trim() === "") return { html: "", lines: 1 };
  if (line.startsWith("```")) return fence(lines, at);
  const heading = /^(#{1,6}) (.*)$/.exec(line);
  if (heading) {
    const level = heading[1]!.length;
    return { html: `<h${level} id="${slug(heading[2]!)}">${inline(heading[2]!)}</h${level}>`, lines: 1 };
  }
  if (line.includes("|") && isRule(lines[at + 1])) return table(lines, at);
  if (ITEM.test(line)) return list(lines, at);
  if (line.startsWith("> ")) {
    const quoted = take(lines, at, (one) => one.startsWith("> "));
    return {
      html: `<blockquote><p>${quoted.map((one) => inline(one.slice(2))).join(" ")}</p></blockquote>`,
      lines: quoted.length,
    };
  }
  const rest = take(lines, at + 1, (one) => !startsBlock(one));
  return { html: `<p>${[line, ...rest].map(inline).join("\n")}</p>`, lines: rest.length + 1 };
}

/** HTML of a document. */
export function renderMarkdown(text: string): string {
  // The mark that stands for code must be ours alone.
  const lines = text.replaceAll("\r\n", "\n").replaceAll("\u0000", "").split("\n");
  const out: string[] = [];
  for (let at = 0; at < lines.length; ) {
    const made = block(lines, at);
    if (made.html) out.push(made.html);
    at += made.lines;
  }
  return out.join("\n");
}

/** First heading of a document, for its title. */
export const titleOf = (text: string): string => /^# (.+)$/m.exec(text)?.[1] ?? "Documentation";
