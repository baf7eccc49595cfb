import { booleanScore, type Checker } from "./checker.ts";

/** Length of the beginning of an answer that is searched, characters. A page of ours has about a thousand. */
const MAX_ANSWER_CHARS = 500_000;
/** Largest number of facts of a page that are searched for. */
const MAX_FACTS = 32;

/**
 * Reduces a text to words and numbers with one space around each, since HTML, JSON and Markdown put different
 * punctuation around a word.
 */
const normaliseWords = (text: string): string => ` ${text.toLowerCase().replace(/[^a-z0-9]+/g, " ")} `;

/**
 * The class of endpoints that scrape, read, extract or photograph the page at a given address. They get the address
 * of a new page on our own site, with facts that nobody can guess (planted.ts).
 */
export const plantedPage: Checker = {
  name: "planted-page",
  variants: {
    read: {
      asks: ["url"],
      answer: null,
      draw(seed, { page }) {
        const newPage = page?.(seed);
        return newPage ? { fields: { url: newPage.url }, truth: newPage.facts } : null;
      },
      solve: ({ url }, { page }) => page?.(String(url)) ?? null,
      delivery: (value) => booleanScore(typeof value === "string" && value.trim() !== ""),
      score(value, truth) {
        if (typeof value !== "string" || !Array.isArray(truth) || truth.length === 0) return 0;
        const answerWords = normaliseWords(value.slice(0, MAX_ANSWER_CHARS));
        const facts = truth.slice(0, MAX_FACTS).map((fact) => normaliseWords(String(fact)));
        return facts.filter((fact) => answerWords.includes(fact)).length / facts.length;
      },
    },
  },
};
