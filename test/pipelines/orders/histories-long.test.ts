import { test } from "vitest";
import { fc } from "../../helpers/histories.ts";
import { history, holds, lived } from "./histories.ts";

/** Twenty thousand of them. */
test("no history of 20,000 breaks an invariant", { timeout: 3_600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(history, async (drawn) => holds(await lived(drawn))),
    { numRuns: 20_000 },
  );
});
