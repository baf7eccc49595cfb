import { describe, expect, test } from "vitest";
import { PAST_DAYS } from "../../commands/simulated-past.ts";
import { SELLERS } from "../../fixtures/market/sellers/index.ts";
import { randomInts } from "../helpers/drawn.ts";
import { BEST, DESERVED } from "./deserved.ts";
import { fateOf } from "./drawn-letters.ts";
import { MODELS } from "./models.ts";

/** Minutes of the UTC day at which the past ends: newly begun, in the leeway of a quarter of an hour, and nearly over. */
const ENDS = [1, 14, 16, 700, 1_433, 1_439];
/** Histories drawn of each seller; `DRAWS=2000 npx vitest run <this file>` looks for what happens once in a thousand. */
const DRAWINGS = Number(process.env.DRAWS ?? ENDS.length);
/** A card that stands may be this old, and its sentence with it. */
const WEEK = 7;

test("every seller of the market has its model, and joins when it does", () => {
  for (const { name, joins = PAST_DAYS } of SELLERS)
    expect(MODELS.find((one) => one.name === name)?.days, name).toBe(joins);
});

describe("whatever is drawn and whatever the hour, a seller gets what it deserves", () => {
  test.each(MODELS)("$name", (model) => {
    const { band, tier, why, flags = [], without = [] } = DESERVED[model.name]!;
    const letter = new RegExp(`^(?:${band})$`);
    for (let seed = 1; seed <= DRAWINGS; seed++) {
      const draw = randomInts(seed);
      const minute = seed <= ENDS.length ? ENDS[seed - 1]! : draw() % 1_440;
      const end = new Date(Date.UTC(2026, 10, 15 + (draw() % 14), 0, minute));
      const fate = fateOf(model, end, draw);
      const said = `seed ${seed}, ${end.toISOString()}: ${JSON.stringify(fate)}`;
      expect(fate.band, said).toMatch(letter);
      expect(fate.tier, said).toBe(`${tier}_VERIFIED`);
      expect(fate.flags, said).toEqual(expect.arrayContaining([...flags]));
      expect(
        fate.flags.filter((flag) => (without as readonly string[]).includes(flag)),
        said,
      ).toEqual([]);
      const better = fate.days.filter((day) => day.band !== "UNRATED" && day.band < (BEST[model.name] ?? "A"));
      expect(better, said).toEqual([]);
      if (model.name === "regulars-only") expect(fate.days.at(-1)!.lower, said).toBeLessThanOrEqual(0.75);
      for (const day of fate.days.slice(-WEEK)) if (letter.test(day.band)) expect(day.why, said).toMatch(why);
    }
  });
});
