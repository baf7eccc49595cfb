import { test } from "vitest";
import { fc } from "../../helpers/histories.ts";
import { history, holds, lived } from "./histories.ts";

/** So many of them. */
const RUNS = Number(process.env.LONG_HISTORIES ?? 20_000);

test(`no history of ${RUNS} breaks an invariant`, { timeout: 3_600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(history, async (drawn) => void (await holds(await lived(drawn)))),
    { numRuns: RUNS },
  );
});
