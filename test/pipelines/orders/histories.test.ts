import { test } from "vitest";
import * as fc from "../../helpers/fast-check.ts";
import { history, holds, lived } from "./histories.ts";

test("no history of faults, thieves and dead processes breaks an invariant", async () => {
  await fc.assert(
    fc.asyncProperty(history, async (drawn) => holds(await lived(drawn))),
    { numRuns: 300 },
  );
});
