import { booleanScore, boundedText, type Checker, lettersAndDigits } from "./checker.ts";

/**
 * The class of endpoints that return a company's legal name by its LEI (ISO 17442). The right name is that in our
 * copy of the open register.
 */
export const companyName: Checker = {
  name: "company-name",
  variants: {
    by_lei: {
      asks: ["lei"],
      answer: "/name",
      async draw(seed, { company }) {
        const row = (await company?.(seed)) ?? null;
        return row && { fields: { lei: row.lei }, truth: row.name };
      },
      async solve({ lei }, { company }) {
        return /^[0-9A-Z]{18}\d\d$/.test(String(lei)) ? ((await company?.(String(lei))) ?? null) : null;
      },
      delivery: (value) => booleanScore(Boolean(boundedText(value, 1_000))),
      score(value, truth) {
        const answer = lettersAndDigits(boundedText(value, 1_000) ?? "");
        return booleanScore(answer !== "" && answer === lettersAndDigits(String(truth)));
      },
    },
  },
};
