import { expect, test } from "vitest";
import { fuzz } from "../helpers/fuzz.ts";
import { fuzzWorld } from "../helpers/fuzz-world.ts";

test("50,000 drawn requests are answered as described, none with a 500", async () => {
  const { app, document, known, close } = await fuzzWorld();
  const tally = await fuzz({ app, document, known, requests: 50_000 });
  const asked = Object.values(tally).flatMap((statuses) => Object.values(statuses));
  expect(asked.reduce((sum, n) => sum + n, 0)).toBeGreaterThanOrEqual(50_000);
  await close();
});
