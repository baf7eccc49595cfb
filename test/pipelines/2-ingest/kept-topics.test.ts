import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { INGESTED } from "../../../pipelines/2-ingest/load.ts";
import { OrderLog } from "../../../pipelines/orders/order-log.ts";
import { type Envelope, sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { OWNER_GROUP, PERMANENT_TOPICS, TOPICS } from "../../../pipelines/record/topics.ts";
import { at, handshake, listing } from "./records.ts";
import { openTestWorld, PARTITIONS } from "./world.ts";

test("a topic is in segments, or kept whole in the log: none is both, none is neither", () => {
  expect([...INGESTED, ...PERMANENT_TOPICS].sort()).toEqual([...TOPICS].sort());
  expect(OWNER_GROUP.topics.filter((topic) => (PERMANENT_TOPICS as readonly string[]).includes(topic))).toEqual([]);
});

test("a log that is truncated behind the ingester keeps every order and every watcher", async () => {
  const file = join(import.meta.dirname, "../record/records-v1.golden.json");
  const golden = JSON.parse(readFileSync(file, "utf8")) as Envelope[];
  const kept = golden.filter(({ type }) => type === "order.step" || type.startsWith("watcher."));
  const world = await openTestWorld({ truncateLog: true });
  const endsOf = async (topic: string) => {
    const starts = Array.from({ length: PARTITIONS }, (_, partition) => world.log.bounds(topic, partition));
    return Promise.all(starts);
  };
  try {
    await world.append(listing("a", at("00:00:00")), handshake("a", at("01:00:00")));
    await world.append(...kept.map((envelope) => sealEnvelope(envelope, PARTITIONS)));
    await world.ingest.pass();
    const probes = await endsOf("observations.free");
    expect(probes.some(({ start, end }) => end > 0 && start === end)).toBe(true);
    for (const topic of PERMANENT_TOPICS) {
      const bounds = await endsOf(topic);
      expect(bounds.every(({ start }) => start === 0)).toBe(true);
      expect(bounds.reduce((sum, { end }) => sum + end, 0)).toBeGreaterThan(0);
    }
    // Who starts now finds the order that was claimed before.
    const orders = new OrderLog(world.log, systemClock, "later");
    await orders.catchUp();
    expect([...orders.table.all()].length).toBeGreaterThan(0);
    orders.close();
  } finally {
    await world.close();
  }
});
