import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { FixedClock, systemClock } from "../../../infra/clock.ts";
import type { Jwks } from "../../../infra/keys/jwk.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { BadPrivateObject } from "../../../pipelines/4-publish/generation.ts";
import { createPublisher, type Publisher, type PublisherOptions } from "../../../pipelines/4-publish/publisher.ts";
import { OvertakenByOwner, PartitionObjects } from "../../../pipelines/roles/protocol/partition-objects.ts";
import { Standby } from "../../../pipelines/roles/protocol/standby.ts";
import { JWKS, ORIGIN, rotated, SIGNERS } from "../4-publish/world.ts";
import { logger } from "./deployment.ts";
import { PARTITIONS } from "./records.ts";

let dir: string;
let store: Store;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "objects-"));
  store = await openDirectoryStore(join(dir, "private"));
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

const Part = z.object({ log: z.string(), positions: z.record(z.string(), z.int()), said: z.string() });
const partsOf = (log = "log") => new PartitionObjects(store, "things", Part, { id: log, partitions: PARTITIONS });
const put = (parts: ReturnType<typeof partsOf>, next: number, said: string, log = "log") =>
  parts.put(1, { log, positions: { "observations.paid": next }, said }, (theirs) => theirs.said !== said);
const saidOf = async (parts: ReturnType<typeof partsOf>) => (await parts.readAll()).get(1)?.said;
const key = "owners/things/01";

describe("an object of a partition", () => {
  test("is what its owner wrote last, whoever that is", async () => {
    const [a, b] = [partsOf(), partsOf()];
    expect(await saidOf(a)).toBeUndefined();
    await put(a, 5, "one");
    expect(await saidOf(b)).toBe("one");
    await put(b, 6, "two");
    expect(await saidOf(a)).toBe("two");
  });

  test("is never taken back by an owner that was paused: it is told, and writes nothing", async () => {
    const [slept, other] = [partsOf(), partsOf()];
    await put(slept, 5, "old");
    await put(other, 6, "new");
    await expect(put(slept, 5, "old")).rejects.toThrow(OvertakenByOwner);
    expect(await saidOf(slept)).toBe("new");
  });

  test("that is damaged stops all who read it until its owner has written it anew", async () => {
    const [owner, other] = [partsOf(), partsOf()];
    await put(owner, 5, "one");
    const { etag } = (await store.get(key))!;
    await store.swap(key, Buffer.from('{"log":"log"'), etag);
    await expect(other.readAll()).rejects.toThrow(BadPrivateObject);
    await put(owner, 5, "one");
    expect(await saidOf(other)).toBe("one");
  });

  test("of another log is as good as none", async () => {
    await put(partsOf("old log"), 900, "old", "old log");
    const parts = partsOf();
    expect(await saidOf(parts)).toBeUndefined();
    await put(parts, 1, "new");
    expect(await saidOf(parts)).toBe("new");
  });
});

describe("publishers that wait", () => {
  const PATIENCE = 1_000;
  let publicStore: Store;
  let now = 0;
  const clock = new FixedClock("2026-11-15T12:00:00.000Z");
  beforeEach(async () => {
    publicStore = await openDirectoryStore(join(dir, "public"));
    now = 0;
  });
  afterEach(() => publicStore.close());

  function one(
    writer: string,
    more: Partial<PublisherOptions> = {},
    jwks: Jwks | null = null,
  ): { publisher: Publisher; standby: Standby } {
    const common = {
      signers: SIGNERS,
      clock,
      origin: ORIGIN,
      partitions: PARTITIONS,
      logger,
      metrics: createMetrics(),
    };
    const stores = { privateStore: store, publicStore };
    const publisher = createPublisher({ ...common, ...stores, writer, ...more });
    const start = async () => {
      if (jwks) await publisher.publishKeys(jwks);
    };
    return {
      publisher,
      standby: new Standby({ ...stores, monotonic: () => now, writer, takeoverMs: PATIENCE, start }),
    };
  }
  const leaf = (day: string) =>
    ({ kind: "schedule", day, salt_hash: "0".repeat(64), covered_root: "0".repeat(64), covered: 0 }) as const;
  const later = (ms: number): void => {
    now += ms;
    clock.set(new Date(clock.now().getTime() + ms));
  };

  test("whoever finds nothing published goes first; the others wait while its checkpoint moves", async () => {
    const [a, b] = [one("a"), one("b")];
    expect(await a.standby.mayPublish()).toBe(true);
    await a.publisher.publishKeys(JWKS);
    expect(await a.standby.mayPublish()).toBe(true);
    for (let n = 0; n < 10; n++) {
      expect(await b.standby.mayPublish()).toBe(false);
      later(PATIENCE);
      await a.publisher.refreshCheckpoint();
    }
  });

  test("one whose start fails stays inactive and starts again at its next turn, at first and after a rotation", async () => {
    let chainBehindMs = 60_000;
    const machine = {
      clock: { ...systemClock, now: () => clock.now() },
      chainTime: async () => ({ newest: new Date(clock.now().getTime() - chainBehindMs), fixedBlockTime: true }),
    };
    const a = one("a", machine, JWKS);
    await expect(a.standby.mayPublish()).rejects.toThrow("behind our clock");
    expect(a.standby.isActive).toBe(false);
    chainBehindMs = 0;
    expect(await a.standby.mayPublish()).toBe(true);
    expect(a.publisher.fold.keys).toMatchObject({ n: 0, leaf: 0 });
    const b = one("b", machine, rotated(clock.now().toISOString()));
    expect(await b.standby.mayPublish()).toBe(false);
    later(2 * PATIENCE + 1);
    chainBehindMs = 60_000;
    await expect(b.standby.mayPublish()).rejects.toThrow("behind our clock");
    expect(b.standby.isActive).toBe(false);
    chainBehindMs = 0;
    expect(await b.standby.mayPublish()).toBe(true);
    expect(b.publisher.fold.keys).toMatchObject({ n: 1 });
    expect(await b.standby.mayPublish()).toBe(true);
  });

  test("one takes over when the checkpoint stands still; a paused one steps back when it sees the other's generation", async () => {
    const [a, b] = [one("a"), one("b")];
    await a.standby.mayPublish();
    await a.publisher.publishKeys(JWKS);
    expect(await b.standby.mayPublish()).toBe(false);
    // By its name a publisher waits once to twice the time.
    later(2 * PATIENCE + 1);
    expect(await b.standby.mayPublish()).toBe(true);
    // Until then both think that it is their turn, and nothing is doubled.
    expect(await a.standby.mayPublish()).toBe(true);
    await b.publisher.publishLeaves([leaf("2026-11-16")]);
    expect(await a.standby.mayPublish()).toBe(false);
    await a.publisher.publishLeaves([leaf("2026-11-16")]);
    expect((await a.publisher.current()).nextSeq.get("schedule")).toBe(1);
    expect(await b.standby.mayPublish()).toBe(true);
  });
});
