import { afterEach, describe, expect, test } from "vitest";
import { ask, at, capOf, correction, handshake, intent, listing, result, settlement } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

describe("rows in, rows out", () => {
  test("smoke", async () => {
    world = await openTestWorld();
    const i = intent("a", at("07:00:00"));
    await world.append(
      listing("a", at("01:00:00")),
      handshake("a", at("02:00:00")),
      handshake("a", at("08:00:00")),
      i,
      result("a", i.eventId, at("07:00:02")),
      settlement("a", i.eventId, at("07:00:05")),
      ask("b", at("01:00:00")),
      correction("a", at("09:00:00"), { record_id: i.eventId }),
    );
    const t = performance.now();
    const done = await world.ingest.pass();
    console.log(performance.now() - t, done);
    for (const table of ["loaded", "event", "samples", "withdrawn", "site", "dirty", "endpoint", "seen", "quoted"])
      console.log(table, await world.lake.all(`FROM ${table}`));
    expect(await world.lake.all("FROM samples")).toHaveLength(3);
    expect(capOf("a")).toBeTruthy();
  });
});
