import { type Checker, numeric, plain, short, yes } from "./checker.ts";

/** Of a sum as floating point has it: 1.1 lies within 0.1 of 1. */
const ROUNDING = 1e-9;

/**
 * Facts that an operator has rows of: the weather of a past day, what a register or a catalogue says of a number. The rows
 * and how near an answer has to be stand in the operator's file, so there is no question without a mapping of it.
 */
export const knownRows: Checker = {
  name: "known-rows",
  variants: {
    row: {
      // What a row asks is the operator's to name.
      asks: [],
      answer: "/answer",
      draw(seed, { row }) {
        const one = row?.(seed) ?? null;
        return one && { fields: one.asks, truth: [one.answer, one.within] };
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
        // A year or a number of a register is a text in one row and a number in another's answer.
        const said = plain(
          Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : (short(value, 1_000) ?? ""),
        );
        return yes(typeof answer === "string" && said !== "" && said === plain(answer));
      },
    },
  },
};
