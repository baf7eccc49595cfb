import { booleanScore, boundedText, type Checker, lettersAndDigits, toNumber } from "./checker.ts";

/** Relative tolerance for rounding errors of floating point, so that 1.1 counts as within 0.1 of 1. */
const RELATIVE_TOLERANCE = 1e-9;

/**
 * The class of questions that our operator supplies as rows of a file, with their answers and the allowed difference:
 * the weather of a past day, an entry of a register or a catalogue. Only endpoints that this file maps to its rows
 * get these questions.
 */
export const knownRows: Checker = {
  name: "known-rows",
  variants: {
    row: {
      // No fields are listed, since each operator's row names its own.
      asks: [],
      answer: "/answer",
      draw(seed, { row }) {
        const drawnRow = row?.(seed) ?? null;
        return drawnRow && { fields: drawnRow.asks, truth: [drawnRow.answer, drawnRow.within] };
      },
      solve(asked, { row }) {
        const foundRow = row?.(asked) ?? null;
        return foundRow && [foundRow.answer, foundRow.within];
      },
      delivery: (value) => booleanScore(toNumber(value) !== undefined || Boolean(boundedText(value, 1_000))),
      score(value, truth) {
        const [answer, within] = Array.isArray(truth) ? (truth as unknown[]) : [];
        if (typeof answer === "number" && typeof within === "number") {
          const answeredNumber = toNumber(value);
          return booleanScore(
            answeredNumber !== undefined &&
              Math.abs(answeredNumber - answer) <= within + RELATIVE_TOLERANCE * Math.max(1, Math.abs(answer)),
          );
        }
        // A year or a registration number may be a text in the row and a JSON number in the answer.
        const answeredText = lettersAndDigits(
          Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : (boundedText(value, 1_000) ?? ""),
        );
        return booleanScore(
          typeof answer === "string" && answeredText !== "" && answeredText === lettersAndDigits(answer),
        );
      },
    },
  },
};
