import { type Checker, yes } from "./checker.ts";

/** Longest answer that is searched, characters: a page of ours has some thousand. */
const MOST = 500_000;
/** Most facts of a page that are searched for. */
const MOST_FACTS = 32;

/**
 * Words and numbers with one space between them: markup, JSON and Markdown put different signs around the same words.
 */
const words = (text: string): string => ` ${text.toLowerCase().replace(/[^a-z0-9]+/g, " ")} `;

/**
 * Endpoints that read the page at a given address: those that scrape, read, extract or photograph pages. They get a
 * page of ours that nobody has seen, with facts on it that nobody can guess (planted.ts).
 */
export const plantedPage: Checker = {
  name: "planted-page",
  variants: {
    read: {
      asks: ["url"],
      answer: null,
      draw(seed, { page }) {
        const made = page?.(seed);
        return made ? { fields: { url: made.url }, truth: made.facts } : null;
      },
      solve: ({ url }, { page }) => page?.(String(url)) ?? null,
      delivery: (value) => yes(typeof value === "string" && value.trim() !== ""),
      score(value, truth) {
        if (typeof value !== "string" || !Array.isArray(truth) || truth.length === 0) return 0;
        const said = words(value.slice(0, MOST));
        const facts = truth.slice(0, MOST_FACTS).map((fact) => words(String(fact)));
        return facts.filter((fact) => said.includes(fact)).length / facts.length;
      },
    },
  },
};
