import type { BriefAnswer, BriefQuotation } from "../../schemas/brief.ts";

/** Largest number of characters of each text on the page. The JSON answer has the whole texts. */
const MAX_CHARS = { quotation: 240, claim: 600, title: 120, url: 300 };
/** Largest number of quotations of one claim that are shown. */
const MAX_SHOWN_QUOTATIONS = 3;

/**
 * Shortens a text of a source to one line and escapes it for Markdown, so that it is shown as text and never as a link,
 * picture, code, heading or HTML element.
 */
const escapeMarkdown = (text: string, maxChars: number): string => {
  const line = text.replaceAll(/[\s\p{Cc}\p{Cf}]+/gu, " ").trim();
  const shortened = [...line].length > maxChars ? `${[...line].slice(0, maxChars - 1).join("")}…` : line;
  return shortened
    .replaceAll(/[\\`*[\]<>&~]/g, "\\$&")
    .replaceAll(/(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu, "\\_")
    .replace(/^(?:[-+=#|]|\d+(?=[.)]))/, "\\$&");
};
/** Formats an address as a link; if it is long or has a character that could end the link, as code instead. */
const formatLink = (url: string): string =>
  url.length > MAX_CHARS.url || /[\s<>`\\]/.test(url)
    ? `\`${url.slice(0, MAX_CHARS.url).replaceAll("`", "%60")}\``
    : `<${url}>`;

const formatSection = (title: string, lines: readonly string[]): string[] =>
  lines.length === 0 ? [] : ["", `## ${title}`, "", ...lines];

/** Returns a brief as one page of Markdown (CommonMark). The text of its sources is escaped. */
export function renderBrief(brief: Omit<BriefAnswer, "markdown">): string {
  const sourceNumbers = new Map<string, number>();
  for (const { url } of brief.sources) if (!sourceNumbers.has(url)) sourceNumbers.set(url, sourceNumbers.size + 1);
  const placeText = ({ url, offset }: BriefQuotation): string =>
    `source ${sourceNumbers.get(url) ?? "?"}, at ${offset}`;
  const formatItem = (says: string, quotations: readonly BriefQuotation[]): string[] => {
    const ownQuotation = quotations.find(({ text }) => text.replaceAll(/\s+/g, " ") === says);
    const others = quotations.filter((one) => one !== ownQuotation).slice(0, MAX_SHOWN_QUOTATIONS);
    const quoted = others.flatMap((quotation) => [
      "",
      `  > ${escapeMarkdown(quotation.text, MAX_CHARS.quotation)} — ${placeText(quotation)}`,
    ]);
    return [
      `- ${escapeMarkdown(says, MAX_CHARS.claim)}${ownQuotation ? ` — ${placeText(ownQuotation)}` : ""}`,
      ...quoted,
    ];
  };
  const sources = brief.sources.map((source, i) =>
    source.read
      ? `${i + 1}. ${source.title ? `${escapeMarkdown(source.title, MAX_CHARS.title)}, ` : ""}${formatLink(source.url)}, sha256 \`${source.sha256}\`, read ${source.fetched_at}${source.cut ? ", the beginning alone" : ""}`
      : `${i + 1}. ${formatLink(source.url)}, not read: ${escapeMarkdown(source.says, MAX_CHARS.quotation)}`,
  );
  return [
    `# ${escapeMarkdown(brief.question, MAX_CHARS.claim)}`,
    "",
    `Asked of ${escapeMarkdown(brief.asked_of.says, MAX_CHARS.claim)}. Answered ${brief.answered_at} by ${escapeMarkdown(brief.summariser.name, MAX_CHARS.title)}.`,
    ...formatSection(
      "What the sources say",
      brief.claims.flatMap(({ text, quotations }) => formatItem(text, quotations)),
    ),
    ...formatSection(
      "Where sources disagree",
      brief.disagreements.flatMap(({ says, quotations }) => formatItem(says, quotations)),
    ),
    ...formatSection(
      "What was not found",
      brief.not_found.map((says) => `- ${escapeMarkdown(says, MAX_CHARS.claim)}`),
    ),
    ...formatSection("Sources", sources),
    "",
  ].join("\n");
}
