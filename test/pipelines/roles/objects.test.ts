import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import type { Thief } from "../../../pipelines/3-grade/related.ts";
import { BadPrivate } from "../../../pipelines/4-publish/generation.ts";
import { createPublisher, type Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { Outrun } from "../../../pipelines/roles/partition-objects.ts";
import { PartBehind, Payees, turnedBetween } from "../../../pipelines/roles/payees.ts";
import { Standby } from "../../../pipelines/roles/standby.ts";
import { JWKS, ORIGIN, SIGNERS } from "../4-publish/world.ts";
import { logger } from "./deployment.ts";
import { capOf, PARTITIONS, sellerIn } from "./records.ts";

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

const thief = (partition: number, n = 0): Thief => {
  const name = sellerIn(partition, "thief", n);
  return { cap: capOf(name), pay_to: `0x${n}`, domain: `${name}.example` };
};
/** Positions of a lake that holds these partitions. */
const upTo = (next: number, held: readonly number[]) => ({
  "observations.paid": Object.fromEntries(held.map((partition) => [String(partition), next])),
});
const AT = "2026-11-15T12:00:00.000Z";
const key = "owners/payees/01";
/** The other partitions have nobody to tell of. */
const othersSay = (log = "log") => new Payees(store, log, PARTITIONS).write([], upTo(1, [0, 2, 3]), [0, 2, 3], AT);

describe("what crosses partitions", () => {
  test("is the same table whoever says which part of it", async () => {
    const all = [0, 1, 2, 3].map((partition) => thief(partition));
    const [a, b] = [new Payees(store, "log", PARTITIONS), new Payees(store, "log", PARTITIONS)];
    await a.write([all[0]!, all[2]!], upTo(5, [0, 2]), [0, 2], AT);
    await b.write([all[1]!, all[3]!], upTo(7, [1, 3]), [1, 3], AT);
    const table = await a.table();
    expect(table).toEqual([...all].sort((x, y) => (x.cap < y.cap ? -1 : 1)));
    expect(await b.table()).toEqual(table);
    // Partition 2 changes hands; its new owner has read further, and finds another thief.
    await b.write([all[1]!, all[2]!, thief(2, 1), all[3]!], upTo(9, [1, 2, 3]), [1, 2, 3], AT);
    expect(await a.table()).toHaveLength(5);
    expect(turnedBetween(table, await a.table())).toEqual([thief(2, 1)]);
    expect(turnedBetween(await a.table(), table)).toEqual([thief(2, 1)]);
  });

  test("is never taken back by an owner that was paused: it is told, and writes nothing", async () => {
    const [slept, other] = [new Payees(store, "log", PARTITIONS), new Payees(store, "log", PARTITIONS)];
    await slept.write([], upTo(5, [1]), [1], AT);
    await other.write([thief(1)], upTo(6, [1]), [1], AT);
    await expect(slept.write([], upTo(5, [1]), [1], AT)).rejects.toThrow(Outrun);
    await othersSay();
    expect(await slept.table()).toEqual([thief(1)]);
  });

  test("nor by one that was paused since an earlier moment, when money had not been kept for long enough to count", async () => {
    const [slept, other] = [new Payees(store, "log", PARTITIONS), new Payees(store, "log", PARTITIONS)];
    await othersSay();
    await other.write([thief(1)], upTo(5, [1]), [1], "2026-11-16T00:00:00.000Z");
    await expect(slept.write([], upTo(5, [1]), [1], AT)).rejects.toThrow(Outrun);
    expect(await slept.table()).toEqual([thief(1)]);
    // With records that the other had not read it says what they tell, though its clock is behind.
    await slept.write([], upTo(6, [1]), [1], AT);
    expect(await other.table()).toEqual([]);
  });

  test("is none before every partition was said", async () => {
    const payees = new Payees(store, "log", PARTITIONS);
    await othersSay();
    await expect(payees.table()).rejects.toThrow("payees of partition 1: none were ever written");
    await payees.write([thief(1)], upTo(5, [1]), [1], AT);
    expect(await payees.table()).toEqual([thief(1)]);
  });

  test("a damaged part stops whoever reads it until its owner has said it anew", async () => {
    const [owner, other] = [new Payees(store, "log", PARTITIONS), new Payees(store, "log", PARTITIONS)];
    await othersSay();
    await owner.write([thief(1)], upTo(5, [1]), [1], AT);
    const { etag } = (await store.get(key))!;
    await store.swap(key, Buffer.from('{"v":1,"log":"log"'), etag);
    await expect(other.table()).rejects.toThrow(BadPrivate);
    await owner.write([thief(1)], upTo(5, [1]), [1], AT);
    expect(await other.table()).toEqual([thief(1)]);
  });

  test("a part of another log is as good as none", async () => {
    await new Payees(store, "old log", PARTITIONS).write([thief(1)], upTo(900, [1]), [1], AT);
    const payees = new Payees(store, "log", PARTITIONS);
    await othersSay();
    await expect(payees.table()).rejects.toThrow(PartBehind);
    await payees.write([thief(1, 1)], upTo(1, [1]), [1], AT);
    expect(await payees.table()).toEqual([thief(1, 1)]);
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

  function one(writer: string): { publisher: Publisher; standby: Standby } {
    const common = {
      signers: SIGNERS,
      clock,
      origin: ORIGIN,
      partitions: PARTITIONS,
      logger,
      metrics: createMetrics(),
    };
    const stores = { privateStore: store, publicStore };
    return {
      publisher: createPublisher({ ...common, ...stores, writer }),
      standby: new Standby({ ...stores, monotonic: () => now, writer, patienceMs: PATIENCE }),
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
    expect(await a.standby.mine()).toBe(true);
    await a.publisher.publishKeys(JWKS);
    expect(await a.standby.mine()).toBe(true);
    for (let n = 0; n < 10; n++) {
      expect(await b.standby.mine()).toBe(false);
      later(PATIENCE);
      await a.publisher.refreshCheckpoint();
    }
  });

  test("one takes over when the checkpoint stands still; a paused one steps back when it sees the other's generation", async () => {
    const [a, b] = [one("a"), one("b")];
    await a.standby.mine();
    await a.publisher.publishKeys(JWKS);
    expect(await b.standby.mine()).toBe(false);
    // By its name a publisher waits once to twice the time.
    later(2 * PATIENCE + 1);
    expect(await b.standby.mine()).toBe(true);
    // Until then both think that it is their turn, and nothing is doubled.
    expect(await a.standby.mine()).toBe(true);
    await b.publisher.publishLeaves([leaf("2026-11-16")]);
    expect(await a.standby.mine()).toBe(false);
    await a.publisher.publishLeaves([leaf("2026-11-16")]);
    expect((await a.publisher.current()).nextSeq.get("schedule")).toBe(1);
    expect(await b.standby.mine()).toBe(true);
  });
});
