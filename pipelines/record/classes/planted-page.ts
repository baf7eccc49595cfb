import { type Checker, yes } from "./checker.ts";

/** Longest answer that is looked through: a page of ours has some thousand characters. */
const MOST = 500_000;
/** Facts of a page, and the length of one, that are looked for. */
const MOST_FACTS = 32;

/**
 * Words and numbers alone, one space between them: markup, JSON and Markdown put different signs around the same words.
 */
const words = (text: string): string => ` ${text.toLowerCase().replace(/[^a-z0-9]+/g, " ")} `;

/**
 * Reads the page that it is given the address of: a page of ours that nobody has seen, with facts on it that nobody can
 * guess (planted.ts). For whoever scrapes, reads, extracts or takes pictures of pages and reads those.
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
