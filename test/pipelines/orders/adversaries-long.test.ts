import { expect, test } from "vitest";
import { fc } from "../../helpers/histories.ts";
import { battle, fought, served, survives } from "./adversaries.ts";

/** So many of them. */
const RUNS = Number(process.env.BATTLES ?? 20_000);

test(`in ${RUNS} battles no loss is larger than it can be, and honest buyers are served`, {
  timeout: 3_600_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(battle, async (moves) => survives(await fought(moves))),
    { numRuns: RUNS },
  );
  console.log(`honest buyers: ${served.settled} of ${served.asked} calls were served`);
  expect(served.settled / served.asked).toBeGreaterThan(0.95);
});
