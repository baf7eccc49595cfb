import MarkdownIt, { type Token } from "markdown-it";

/**
 * Renders our documents as HTML: CommonMark with tables, by markdown-it. HTML in a document is escaped, no picture is
 * loaded, and a link leads to an http(s) address, to a place on this host or to another document, never to a script.
 */

/** Returns the anchor of a heading: `## Bad request` -> `bad-request`. */
const slug = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");

/** State while one document is rendered. */
interface RenderState {
  /** Text of the last heading, by which the tables below it are named. */
  heading: string;
  /** How often each anchor was used: from the second use on, a number is appended. */
  anchors: Map<string, number>;
}

const DOC_LINK = /^(?:\.\/)?([a-z0-9-]+)\.md(?=#|$)/;
const SCRIPT_LINK = /^(?:\.\/)?([a-z0-9-]+\.(?:mjs|py|go))$/;
const LINK = /^(?:https?:\/\/[^\s"<>]+|\/(?!\/)[^\s"<>]*|#[^\s"<>]*)$/i;

/** Converts a link to `name.md`, as it works in a checkout, to `/docs/name`. */
const toServedHref = (href: string): string => href.replace(DOC_LINK, "/docs/$1").replace(SCRIPT_LINK, "/docs/$1");

const plainText = (inline: Token): string =>
  (inline.children ?? []).map(({ type, content }) => (type.endsWith("break") ? " " : content)).join("");

const markdown = new MarkdownIt("default", { html: false, linkify: false, typographer: false }).disable("image");
markdown.validateLink = (href) => LINK.test(toServedHref(href));
const normalize = markdown.normalizeLink;
markdown.normalizeLink = (href) => normalize(toServedHref(href));
const { rules } = markdown.renderer;

function anchorOf({ anchors }: RenderState, text: string): string {
  const anchor = slug(text);
  const earlierCount = anchors.get(anchor) ?? 0;
  anchors.set(anchor, earlierCount + 1);
  return earlierCount === 0 ? anchor : `${anchor}-${earlierCount + 1}`;
}

rules.heading_open = (tokens, at, _options, env) => {
  const state = env as unknown as RenderState;
  state.heading = plainText(tokens[at + 1]!);
  return `<${tokens[at]!.tag} id="${anchorOf(state, state.heading)}">`;
};
const renderCode: NonNullable<typeof rules.fence> = (tokens, at) =>
  `<pre tabindex="0"><code>${markdown.utils.escapeHtml(tokens[at]!.content.replace(/\n$/, ""))}</code></pre>\n`;
rules.fence = renderCode;
rules.code_block = renderCode;
rules.table_open = (_tokens, _at, _options, env) => {
  const name = markdown.utils.escapeHtml((env as unknown as RenderState).heading);
  return `<div class="scroll" tabindex="0" role="region" aria-label="${name}, as a table"><table><caption class="unseen">${name}</caption>\n`;
};
rules.table_close = () => "</table></div>\n";
// markdown-it gives the alignment as a style attribute; a page allows no styles except its sheet's, so a class is used.
const alignmentOf = (token: Token): string => (String(token.attrGet("style")).includes("right") ? ' class="n"' : "");
rules.th_open = (tokens, at) => `<th scope="col"${alignmentOf(tokens[at]!)}>`;
/**
 * A row whose first cell is one word of code explains that word, and gets an anchor: the `type` of a problem document
 * links to it.
 */
rules.td_open = (tokens, at, _options, env) => {
  const words = tokens[at + 1]?.children ?? [];
  const isTermCell = tokens[at - 1]?.type === "tr_open" && words.length === 1 && words[0]!.type === "code_inline";
  const id = isTermCell ? ` id="${anchorOf(env as unknown as RenderState, words[0]!.content)}"` : "";
  return `<td${id}${alignmentOf(tokens[at]!)}>`;
};

/** Returns a document as HTML. */
export const renderMarkdown = (text: string): string =>
  markdown.render(text, { heading: "Table", anchors: new Map() } satisfies RenderState).trimEnd();

const tokensOf = (text: string): Token[] => markdown.parse(text, {});

/** Returns the text of a document's first heading, its title. */
export function titleOf(text: string): string {
  const tokens = tokensOf(text);
  const at = tokens.findIndex(({ type, tag }) => type === "heading_open" && tag === "h1");
  return at < 0 ? "Documentation" : plainText(tokens[at + 1]!);
}

/** Returns the first sentence of a document's first paragraph, without markup; at most 200 characters. */
export function leadOf(text: string): string {
  const tokens = tokensOf(text);
  const at = tokens.findIndex(({ type, level }) => type === "paragraph_open" && level === 0);
  const paragraph = at < 0 ? "" : plainText(tokens[at + 1]!);
  const sentence = /^.*?[.:](?= |$)/.exec(paragraph)?.[0] ?? paragraph;
  const fullSentence = sentence.replace(/:$/, ".");
  return fullSentence.length > 200 ? `${fullSentence.slice(0, 199)}…` : fullSentence;
}
