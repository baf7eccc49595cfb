import { expect, test } from "vitest";
import { fuzz } from "../helpers/fuzz.ts";
import { fuzzWorld } from "../helpers/fuzz-world.ts";

/** `fuzz-long.test.ts` of the slow suite asks 50,000 times. */
const REQUESTS = 3_700;

test("drawn requests of every described operation are answered as described, none with a 500", async () => {
  const { app, document, known, close } = await fuzzWorld();
  const tally = await fuzz({ app, document, known, requests: REQUESTS });
  expect(Object.keys(tally).length).toBe(Object.values(document.paths).flatMap(Object.keys).length);
  // Both good and bad requests were drawn where there are both.
  for (const id of ["check", "trust", "archive", "archiveManifest"])
    expect([id, tally[id]![200]! > 10, tally[id]![400]! > 10]).toEqual([id, true, true]);
  expect(tally.trust![404]).toBeGreaterThan(10);
  expect(tally.dispute![400]).toBeGreaterThan(10);
  await close();
});

test("an answer that is not as described is found", async () => {
  const { document, known, close } = await fuzzWorld();
  const lying = (status: number, body: string) => ({
    request: async () => new Response(body, { status, headers: { "content-type": "application/json" } }),
  });
  for (const app of [lying(200, '{"band":"E"}'), lying(418, "{}"), lying(500, "{}")])
    await expect(fuzz({ app: app as never, document, known, requests: 20 })).rejects.toThrow();
  await close();
});
