import { type Checker, numeric, plain, short, yes } from "./checker.ts";

/** Allows for floating point: 1.1 counts as within 0.1 of 1. */
const ROUNDING = 1e-9;

/**
 * Facts of which an operator has rows: the weather of a past day, an entry of a register or a catalogue. The operator's
 * file holds the rows and how near an answer has to be, so a question needs a mapping from that file.
 */
export const knownRows: Checker = {
  name: "known-rows",
  variants: {
    row: {
      // The operator names the fields of its rows.
      asks: [],
      answer: "/answer",
      draw(seed, { row }) {
        const one = row?.(seed) ?? null;
        return one && { fields: one.asks, truth: [one.answer, one.within] };
      },
      solve(asked, { row }) {
        const one = row?.(asked) ?? null;
        return one && [one.answer, one.within];
      },
      delivery: (value) => yes(numeric(value) !== undefined || Boolean(short(value, 1_000))),
      score(value, truth) {
        const [answer, within] = Array.isArray(truth) ? (truth as unknown[]) : [];
        if (typeof answer === "number" && typeof within === "number") {
          const said = numeric(value);
          return yes(
            said !== undefined && Math.abs(said - answer) <= within + ROUNDING * Math.max(1, Math.abs(answer)),
          );
        }
        // A year or a register's number may be a text in the row and a number in the answer.
        const said = plain(
          Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : (short(value, 1_000) ?? ""),
        );
        return yes(typeof answer === "string" && said !== "" && said === plain(answer));
      },
    },
  },
};
