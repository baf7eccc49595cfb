import { type Checker, numeric, plain, short, yes } from "./checker.ts";

/**
 * Facts that an operator has rows of: the weather of a past day, what a register or a catalogue says of a number. The rows
 * and how near an answer has to be stand in the operator's file, so there is no question without a mapping of it.
 */
export const knownRows: Checker = {
  name: "known-rows",
  level: "truth",
  tolerance: "a number within what the operator's rows allow; a text by its letters and figures, whatever the case",
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
          return yes(said !== undefined && Math.abs(said - answer) <= within);
        }
        const said = plain(short(value, 1_000) ?? "");
        return yes(typeof answer === "string" && said !== "" && said === plain(answer));
      },
    },
  },
};
