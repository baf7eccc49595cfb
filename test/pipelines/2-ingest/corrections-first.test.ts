import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { proveIngest } from "./prove-ingest.ts";
import { at, correction, handshake, listing } from "./records.ts";
import { openTestLake, openTestWorld, type World } from "./world.ts";

let world: World;
afterEach(() => world.close());

test("a correction is the first that a process loads after its start, over the lake of the one before", async () => {
  world = await openTestWorld();
  const path = join(world.dir, "again.duckdb");
  const before = await openTestLake(path);
  await world.append(listing("a", at("01:00:00")), handshake("a", at("02:00:00")));
  await (await world.rival({ lake: before })).pass();
  await before.close();

  const lake = await openTestLake(path);
  await world.append(correction("a", at("03:00:00")));
  await (await world.rival({ lake })).pass();
  await proveIngest({ ...world, lake });
  expect(await lake.all("SELECT count(*)::INTEGER AS n FROM withdrawn")).toEqual([{ n: 1 }]);
  await lake.close();
});
