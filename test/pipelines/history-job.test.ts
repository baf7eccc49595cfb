import { afterAll, beforeAll, expect, test } from "vitest";
import type { Publisher } from "../../pipelines/4-publish/publisher.ts";
import { readView } from "../../pipelines/4-publish/view.ts";
import { HistoryFile } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { Pipeline, type PipelineParts } from "../../pipelines/roles/pipeline.ts";
import { at, capOf, handshake, listing } from "./2-ingest/records.ts";
import { openTestWorld, type World } from "./2-ingest/world.ts";
import { JWKS, World as PublishWorld } from "./4-publish/world.ts";

const NOW = new Date("2026-11-15T12:00:00.000Z");
let world: World;
let published: PublishWorld;
let publisher: Publisher;
let pipeline: Pipeline;
beforeAll(async () => {
  world = await openTestWorld();
  published = await PublishWorld.open();
  publisher = published.publisher();
  await publisher.publishKeys(JWKS);
  // The job asks nobody else: whatever it reached for besides would fail.
  const { lake, ingest, log, clock } = world;
  const { privateStore, publicStore } = published;
  const parts: Partial<PipelineParts> = { lake, ingest, log, clock, privateStore, publicStore, publisher };
  pipeline = new Pipeline(parts as PipelineParts);
});
afterAll(async () => {
  await published.close();
  await world.close();
});

const fileOf = async (name: string) => {
  const key = (await readView(published.publicStore))!.history!.files[String(bucketOf(capOf(name)))]!;
  return { key, days: new HistoryFile((await published.publicStore.get(key))!.bytes).daysOf(capOf(name)) };
};

test("writes the files of changed buckets only, and names them beside those that stay", async () => {
  await world.append(...["x", "y"].flatMap((name) => [listing(name, at("00:00:00")), handshake(name, at("01:00:00"))]));
  await world.ingest.pass();
  expect(bucketOf(capOf("x"))).not.toBe(bucketOf(capOf("y")));
  expect(await pipeline.writeHistory(NOW)).toBe(2);
  const [x, y] = [await fileOf("x"), await fileOf("y")];
  expect([x.days.length, y.days.length]).toEqual([1, 1]);
  expect(await pipeline.writeHistory(NOW)).toBe(0);
  await world.append(handshake("y", at("02:00:00")));
  await world.ingest.pass();
  expect(await pipeline.writeHistory(NOW)).toBe(1);
  expect((await fileOf("x")).key).toBe(x.key);
  expect(await fileOf("y")).toMatchObject({ days: [{ probes: 2 }] });
  expect((await fileOf("y")).key).not.toBe(y.key);
});
