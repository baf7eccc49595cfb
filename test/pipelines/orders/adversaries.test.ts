import { expect, test } from "vitest";
import * as fc from "../../helpers/fast-check.ts";
import { battle, fought, served, survives } from "./adversaries.ts";

// Draws histories.
test("against adversaries with money the books agree with the chain, losses stay bounded, and honest buyers are served", async () => {
  await fc.assert(
    fc.asyncProperty(battle, async (moves) => survives(await fought(moves))),
    { numRuns: 100 },
  );
  console.log(`honest buyers: ${served.settled} of ${served.asked} calls were served`);
  expect(served.settled / served.asked).toBeGreaterThan(0.95);
});
