import MarkdownIt, { type Token } from "markdown-it";

/**
 * Our documents as HTML: CommonMark with tables, read by markdown-it. No HTML of a document passes, no picture is loaded, and
 * a link leads to an http(s) address, to a place on this host or to a page beside this one, never to a script.
 */

/** Anchor of a heading: `## Bad request` -> `bad-request`. */
const slug = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");

/** What a rendering remembers on its way down the page. */
interface Seen {
  /** Heading above, which names the tables below it. */
  heading: string;
  /** How often each anchor was given: a second one of a name gets a number. */
  anchors: Map<string, number>;
}

const BESIDE = /^(?:\.\/)?([a-z0-9-]+)\.md(?=#|$)/;
const SCRIPT_BESIDE = /^(?:\.\/)?([a-z0-9-]+\.mjs)$/;
const LINK = /^(?:https?:\/\/[^\s"<>]+|\/(?!\/)[^\s"<>]*|#[^\s"<>]*)$/i;

/** `name.md`, as it is read in a checkout, is served under `/docs/name`. */
const served = (href: string): string => href.replace(BESIDE, "/docs/$1").replace(SCRIPT_BESIDE, "/docs/$1");

const plain = (inline: Token): string =>
  (inline.children ?? []).map(({ type, content }) => (type.endsWith("break") ? " " : content)).join("");

const markdown = new MarkdownIt("default", { html: false, linkify: false, typographer: false }).disable("image");
markdown.validateLink = (href) => LINK.test(served(href));
const normalize = markdown.normalizeLink;
markdown.normalizeLink = (href) => normalize(served(href));
const { rules } = markdown.renderer;

function anchorOf({ anchors }: Seen, text: string): string {
  const anchor = slug(text);
  const before = anchors.get(anchor) ?? 0;
  anchors.set(anchor, before + 1);
  return before === 0 ? anchor : `${anchor}-${before + 1}`;
}

rules.heading_open = (tokens, at, _options, env) => {
  const seen = env as unknown as Seen;
  seen.heading = plain(tokens[at + 1]!);
  return `<${tokens[at]!.tag} id="${anchorOf(seen, seen.heading)}">`;
};
const pre: NonNullable<typeof rules.fence> = (tokens, at) =>
  `<pre tabindex="0"><code>${markdown.utils.escapeHtml(tokens[at]!.content.replace(/\n$/, ""))}</code></pre>\n`;
rules.fence = pre;
rules.code_block = pre;
rules.table_open = (_tokens, _at, _options, env) => {
  const name = markdown.utils.escapeHtml((env as unknown as Seen).heading);
  return `<div class="scroll" tabindex="0" role="region" aria-label="${name}, as a table"><table><caption class="unseen">${name}</caption>\n`;
};
rules.table_close = () => "</table></div>\n";
// Alignment comes as a style, and a page has no styles but its sheet's.
const sideOf = (token: Token): string => (String(token.attrGet("style")).includes("right") ? ' class="n"' : "");
rules.th_open = (tokens, at) => `<th scope="col"${sideOf(tokens[at]!)}>`;
/** A row that begins with one word of code is what that word means: a problem document's `type` leads there. */
rules.td_open = (tokens, at, _options, env) => {
  const words = tokens[at + 1]?.children ?? [];
  const isNamed = tokens[at - 1]?.type === "tr_open" && words.length === 1 && words[0]!.type === "code_inline";
  const id = isNamed ? ` id="${anchorOf(env as unknown as Seen, words[0]!.content)}"` : "";
  return `<td${id}${sideOf(tokens[at]!)}>`;
};

/** HTML of a document. */
export const renderMarkdown = (text: string): string =>
  markdown.render(text, { heading: "Table", anchors: new Map() } satisfies Seen).trimEnd();

const tokensOf = (text: string): Token[] => markdown.parse(text, {});

/** First heading of a document, for its title. */
export function titleOf(text: string): string {
  const tokens = tokensOf(text);
  const at = tokens.findIndex(({ type, tag }) => type === "heading_open" && tag === "h1");
  return at < 0 ? "Documentation" : plain(tokens[at + 1]!);
}

/** First sentence of a document's first paragraph, without markup; at most 200 characters. */
export function leadOf(text: string): string {
  const tokens = tokensOf(text);
  const at = tokens.findIndex(({ type, level }) => type === "paragraph_open" && level === 0);
  const paragraph = at < 0 ? "" : plain(tokens[at + 1]!);
  const sentence = /^.*?[.:](?= |$)/.exec(paragraph)?.[0] ?? paragraph;
  const whole = sentence.replace(/:$/, ".");
  return whole.length > 200 ? `${whole.slice(0, 199)}…` : whole;
}
