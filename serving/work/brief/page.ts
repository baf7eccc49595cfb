import type { BriefAnswer, BriefQuotation } from "../../schemas/brief.ts";

/** Most characters of a quotation, a claim, a title and an address on the page; the answer has all of them. */
const SHOWN = { quotation: 240, claim: 600, title: 120, url: 300 };
/** Most quotations of one claim that are shown. */
const MAX_SHOWN = 3;

/** Escapes a stranger's text for Markdown: it becomes no hidden link, picture, code, heading or element of HTML. */
const escaped = (text: string, most: number): string => {
  const line = text.replaceAll(/[\s\p{Cc}\p{Cf}]+/gu, " ").trim();
  const cut = [...line].length > most ? `${[...line].slice(0, most - 1).join("")}…` : line;
  return cut
    .replaceAll(/[\\`*[\]<>&~]/g, "\\$&")
    .replaceAll(/(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu, "\\_")
    .replace(/^(?:[-+=#|]|\d+(?=[.)]))/, "\\$&");
};
/** Formats an address as a link; one with a character that could end the link is shown as code. */
const linked = (url: string): string =>
  url.length > SHOWN.url || /[\s<>`\\]/.test(url)
    ? `\`${url.slice(0, SHOWN.url).replaceAll("`", "%60")}\``
    : `<${url}>`;

const section = (title: string, lines: readonly string[]): string[] =>
  lines.length === 0 ? [] : ["", `## ${title}`, "", ...lines];

/** Returns a brief as one page of Markdown (CommonMark). The text of its sources is escaped. */
export function pageOf(brief: Omit<BriefAnswer, "markdown">): string {
  const numbers = new Map<string, number>();
  for (const { url } of brief.sources) if (!numbers.has(url)) numbers.set(url, numbers.size + 1);
  const placed = ({ url, offset }: BriefQuotation): string => `source ${numbers.get(url) ?? "?"}, at ${offset}`;
  const item = (says: string, quotations: readonly BriefQuotation[]): string[] => {
    const own = quotations.find(({ text }) => text.replaceAll(/\s+/g, " ") === says);
    const others = quotations.filter((one) => one !== own).slice(0, MAX_SHOWN);
    const quoted = others.flatMap((one) => ["", `  > ${escaped(one.text, SHOWN.quotation)} — ${placed(one)}`]);
    return [`- ${escaped(says, SHOWN.claim)}${own ? ` — ${placed(own)}` : ""}`, ...quoted];
  };
  const sources = brief.sources.map((source, i) =>
    source.read
      ? `${i + 1}. ${source.title ? `${escaped(source.title, SHOWN.title)}, ` : ""}${linked(source.url)}, sha256 \`${source.sha256}\`, read ${source.fetched_at}${source.cut ? ", the beginning alone" : ""}`
      : `${i + 1}. ${linked(source.url)}, not read: ${escaped(source.says, SHOWN.quotation)}`,
  );
  return [
    `# ${escaped(brief.question, SHOWN.claim)}`,
    "",
    `Asked of ${escaped(brief.asked_of.says, SHOWN.claim)}. Answered ${brief.answered_at} by ${escaped(brief.summariser.name, SHOWN.title)}.`,
    ...section(
      "What the sources say",
      brief.claims.flatMap(({ text, quotations }) => item(text, quotations)),
    ),
    ...section(
      "Where sources disagree",
      brief.disagreements.flatMap(({ says, quotations }) => item(says, quotations)),
    ),
    ...section(
      "What was not found",
      brief.not_found.map((says) => `- ${escaped(says, SHOWN.claim)}`),
    ),
    ...section("Sources", sources),
    "",
  ].join("\n");
}
