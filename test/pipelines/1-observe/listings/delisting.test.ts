import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { importFile } from "../../../../commands/listings.ts";
import { FixedClock } from "../../../../infra/clock.ts";
import type { Lake } from "../../../../infra/lake/duckdb.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import { EVERY_HOST } from "../../../../pipelines/1-observe/hosts.ts";
import { Intake, type IntakeReport } from "../../../../pipelines/1-observe/listings/intake.ts";
import { Sellers } from "../../../../pipelines/1-observe/listings/sellers.ts";
import { HostQueue, INTAKE } from "../../../../pipelines/1-observe/queue.ts";
import { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import { createMemory } from "../../../../pipelines/2-ingest/memory.ts";
import { listingFacts } from "../../../../pipelines/2-ingest/volatile.ts";
import { capId, partitionOf } from "../../../../pipelines/record/ids.ts";
import { handshake } from "../../2-ingest/records.ts";
import { openTestWorld, PARTITIONS, type World } from "../../2-ingest/world.ts";
import { readTerms } from "../readings.ts";
import { answer, entry, FakeEgress, FakeRail, item, timeout, wellKnown } from "../world.ts";

/** What is listed, as the lake tells it: a real log, a real ingest, the same UTC day throughout. */
const CATALOGUE = "https://catalogue.example";
const rail = new FakeRail();
let world: World;
let egress: FakeEgress;
let clock: FixedClock;
let take: Intake;
let n = 0;
let seller: string;

const restart = (): Intake => {
  const metrics = createMetrics();
  const recorder = new Recorder({ log: world.log, producer: "test", metrics });
  return new Intake({ egress, rail, recorder, metrics, memory: createMemory(world.lake) });
};
const delisted = (lake: Lake): Promise<string[]> =>
  lake.transaction(async (tx) => (await listingFacts(tx, "changed")).unlisted);
const capOf = (path: string): string => capId("GET", `${seller}${path}`);
const isListed = async (path: string): Promise<boolean> => {
  await world.ingest.pass();
  return (await createMemory(world.lake).listed()).some((one) => one.cap === capOf(path));
};
const read = async (...paths: string[]): Promise<IntakeReport> => {
  clock.set(new Date(clock.now().getTime() + 60_000));
  egress.sellers.set(seller, () => answer(200, wellKnown(...paths.map((path) => item({ resource: path })))));
  return take.readSeller(seller, clock);
};

beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());
beforeEach(() => {
  egress = new FakeEgress();
  clock = new FixedClock("2026-11-15T01:00:00.000Z");
  seller = `https://s${n++}.example`;
  take = restart();
});
afterEach(() => egress.close());

describe("a seller's listing that was read whole", () => {
  test("a row that names another method leaves the old endpoint for an owner that reads its partition alone too", async () => {
    const methods = ["GET", "POST"] as const;
    const partitionsOf = (path: string) => methods.map((m) => partitionOf(capId(m, `${seller}${path}`), PARTITIONS));
    const path = Array.from({ length: 64 }, (_, i) => `/p${i}`).find((one) => new Set(partitionsOf(one)).size === 2)!;
    const say = async (method: "GET" | "POST"): Promise<void> => {
      egress.sellers.set(seller, () => answer(200, wellKnown(item({ resource: path, method: undefined }))));
      take.rememberMethod(`${seller}${path}`, method);
      await take.readSeller(seller, clock);
    };
    const listedBy = async (partitions: readonly number[]): Promise<string[]> => {
      await world.ingest.hold(partitions);
      await world.ingest.pass();
      return (await createMemory(world.lake).listed()).flatMap(({ url, method }) =>
        url === `${seller}${path}` ? [method] : [],
      );
    };
    const [ofGet, ofPost] = partitionsOf(path) as [number, number];
    // The first move within the millisecond in which the row was listed, and later back again.
    for (const [method, seen] of [
      ["GET", [["GET"], []]],
      ["POST", [[], ["POST"]]],
      ["GET", [["GET"], []]],
    ] as const) {
      await say(method);
      const partly = [await listedBy([ofGet]), await listedBy([ofPost])];
      expect([...partly, await listedBy([0, 1])]).toEqual([...seen, [method]]);
      if (method === "POST") clock.set(new Date(clock.now().getTime() + 60_000));
    }
  });

  test("what it no longer names is delisted, and counts again when it is named again on the same day, and again", async () => {
    expect(await read("/a", "/b")).toMatchObject({ appended: 2, delisted: 0 });
    for (let round = 0; round < 3; round++) {
      expect(await read("/a")).toMatchObject({ appended: 0, same: 1, delisted: 1 });
      expect([await isListed("/a"), await isListed("/b")]).toEqual([true, false]);
      expect(await delisted(world.lake)).toContain(capOf("/b"));
      expect(await read("/a")).toMatchObject({ appended: 0, delisted: 0 });
      expect(await read("/a", "/b")).toMatchObject({ appended: 1, same: 1, delisted: 0 });
      expect(await isListed("/b")).toBe(true);
      expect(await delisted(world.lake)).not.toContain(capOf("/b"));
    }
  });

  test("a process that starts anew on the same day knows what stood, what went and which ids are used up", async () => {
    for (let round = 0; round < 3; round++) {
      await read("/a", "/b");
      expect(await isListed("/b")).toBe(true);
      take = restart();
      expect(await read("/a")).toMatchObject({ appended: 0, delisted: 1 });
      expect(await isListed("/b")).toBe(false);
      take = restart();
      expect(await read("/a")).toMatchObject({ appended: 0, delisted: 0 });
    }
  });

  test("content that changes and changes back across restarts is the newest content", async () => {
    const say = async (description: string): Promise<unknown> => {
      clock.set(new Date(clock.now().getTime() + 60_000));
      egress.sellers.set(seller, () => answer(200, wellKnown(item({ resource: "/a", description }))));
      await restart().readSeller(seller, clock);
      await world.ingest.pass();
      return (await createMemory(world.lake).listed()).find((one) => one.cap === capOf("/a"))?.claims.description;
    };
    for (const word of ["one", "two", "one", "two", "two", "one"]) expect(await say(word)).toBe(word);
  });

  test("content that changes back after more changes in a day than are remembered is the newest content", async () => {
    const paths = Array.from({ length: 50 }, (_, i) => `/row-${i}`);
    const say = async (description: string): Promise<IntakeReport> => {
      clock.set(new Date(clock.now().getTime() + 60_000));
      const items = paths.map((resource) => item({ resource, description }));
      egress.sellers.set(seller, () => answer(200, wellKnown(...items)));
      return take.readSeller(seller, clock);
    };
    // 1,000 ids and 8 a row are remembered (SourceStateCache): 29 times 50 are more, so the lake is asked for them.
    for (let round = 0; round < 29; round++) expect(await say(`words ${round}`)).toMatchObject({ appended: 50 });
    for (const back of ["words 0", "words 1"]) {
      await world.ingest.pass();
      expect(await say(back)).toMatchObject({ appended: 50 });
      await world.ingest.pass();
      const listed = (await createMemory(world.lake).listed()).filter((one) => one.url.startsWith(seller));
      expect(new Set(listed.map((one) => one.claims.description))).toEqual(new Set([back]));
    }
  });

  /** Records that `/paid` of the seller answered with a 402, and what that declares, as a planned probe does. */
  const answered = async (): Promise<void> => {
    const header = Buffer.from(JSON.stringify({ x402Version: 2, accepts: [entry()] })).toString("base64");
    const declared = readTerms({ headers: { "payment-required": header }, body: Buffer.from("{}") }, rail);
    await world.append(handshake(new URL(seller).hostname.split(".")[0]!, clock.now().toISOString()));
    await take.recordFrom402(capOf("/paid"), `${seller}/paid`, "GET", declared, clock);
  };

  test("what answered with a 402 is delisted too, after a restart as well, until it is named again", async () => {
    await read("/a", "/paid");
    await answered();
    expect(await isListed("/paid")).toBe(true);
    expect(await read("/a")).toMatchObject({ delisted: 1 });
    for (const process of [take, restart()]) {
      take = process;
      await answered();
      expect(await isListed("/paid")).toBe(false);
      expect(await delisted(world.lake)).toContain(capOf("/paid"));
    }
    await read("/a", "/paid");
    expect(await isListed("/paid")).toBe(true);
    expect(await delisted(world.lake)).not.toContain(capOf("/paid"));
  });

  test("a seller that refuses paid calls and leaves is in no plan, though it answers with a 402", async () => {
    const refusing = item({ resource: "/paid", paid_test_calls: false });
    egress.sellers.set(seller, () => answer(200, wellKnown(item({ resource: "/a" }), refusing)));
    await take.readSeller(seller, clock);
    await answered();
    expect(await isListed("/paid")).toBe(true);
    const listed = (await createMemory(world.lake).listed()).find((one) => one.cap === capOf("/paid"));
    expect(listed?.sellerClaims?.no_paid_calls).toBe(true);
    await read("/a");
    expect(await isListed("/paid")).toBe(false);
  });

  test("an endpoint that only its own 402 ever named is listed", async () => {
    await answered();
    expect(await isListed("/paid")).toBe(true);
    expect(await delisted(world.lake)).not.toContain(capOf("/paid"));
  });

  test("what another process delisted is listed again by the next read that names it", async () => {
    await read("/a", "/b");
    await isListed("/b");
    const other = restart();
    clock.set(new Date(clock.now().getTime() + 60_000));
    egress.sellers.set(seller, () => answer(200, wellKnown(item({ resource: "/a" }))));
    expect(await other.readSeller(seller, clock)).toMatchObject({ delisted: 1 });
    expect(await isListed("/b")).toBe(false);
    expect(await read("/a", "/b")).toMatchObject({ appended: 1, same: 1 });
    expect(await isListed("/b")).toBe(true);
    // What this process wrote itself is known before the lake has it.
    expect(await read("/a", "/b")).toMatchObject({ appended: 0, same: 2 });
    expect(await read("/a")).toMatchObject({ delisted: 1 });
    expect(await read("/a", "/b")).toMatchObject({ appended: 1 });
    expect(await isListed("/b")).toBe(true);
  });

  test("a seller whose endpoints all left is read for 30 days more, and lists them again", async () => {
    await read("/a");
    expect(await read()).toMatchObject({ delisted: 1 });
    expect(await isListed("/a")).toBe(false);
    egress.sellers.set(seller, () => answer(200, wellKnown(item({ resource: "/a" }))));
    const readAllDue = () => {
      const memory = createMemory(world.lake);
      const parts = {
        intake: take,
        memory,
        egress,
        hostQueue: new HostQueue(4, 100, { [INTAKE]: 4 }),
        clock,
        hosts: EVERY_HOST,
      };
      return new Sellers(parts).readAllDue();
    };
    const asked = () => egress.asked.filter(({ url }) => url.startsWith(seller)).length;
    const before = asked();
    clock.set(new Date(clock.now().getTime() + 31 * 86_400_000));
    await readAllDue();
    expect(asked()).toBe(before);
    clock.set(new Date(clock.now().getTime() - 2 * 86_400_000));
    await readAllDue();
    expect(await isListed("/a")).toBe(true);
  });

  test("an empty list delists everything", async () => {
    await read("/a", "/b");
    expect(await read()).toMatchObject({ delisted: 2 });
  });

  test("a list that became empty is gone, though another document names endpoints now", async () => {
    await read("/a", "/b");
    const openapi = { openapi: "3.0.0", paths: { "/c": { get: { responses: { 402: {} } } } } };
    const files: Record<string, unknown> = { "/.well-known/x402": { items: [] }, "/openapi.json": openapi };
    egress.sellers.set(seller, (asked) => answer(200, files[new URL(asked.url).pathname] ?? {}));
    expect(await take.readSeller(seller, clock)).toMatchObject({ delisted: 2, appended: 1 });
    expect([await isListed("/a"), await isListed("/c")]).toEqual([false, true]);
  });

  test.each([
    ["gone", () => answer(404, {})],
    ["html", () => answer(200, "<!doctype html><p>soon")],
    ["silent", timeout],
    ["a shop window", () => answer(200, { name: "x", payment: { provider: "stripe" } })],
    [
      "more rows than are read",
      () => answer(200, wellKnown(...Array.from({ length: 2_001 }, () => item({ resource: "/a" })))),
    ],
  ])("%s: nothing is delisted", async (_name, handler) => {
    await read("/a", "/b");
    egress.sellers.set(seller, handler);
    expect(await take.readSeller(seller, clock)).toMatchObject({ delisted: 0 });
    expect(await isListed("/b")).toBe(true);
  });
});

describe("a catalogue", () => {
  const serve = (...paths: string[]) =>
    egress.sellers.set(CATALOGUE, (asked) => {
      const rows = paths.map((path) => ({ resource: `${seller}${path}`, method: "GET", accepts: [] }));
      return answer(200, { items: asked.url.includes("offset=0") ? rows : [], pagination: { total: paths.length } });
    });

  test("read until stable delists what it dropped; one that breaks off or shows nothing at all does not", async () => {
    serve("/a", "/b");
    await take.readCatalogue(CATALOGUE, clock);
    egress.sellers.set(CATALOGUE, () => answer(500, {}));
    expect(await take.readCatalogue(CATALOGUE, clock)).toMatchObject({ delisted: 0, says: expect.any(String) });
    serve();
    expect(await take.readCatalogue(CATALOGUE, clock)).toMatchObject({ delisted: 0 });
    expect(await isListed("/b")).toBe(true);
    clock.set(new Date(clock.now().getTime() + 60_000));
    serve("/a");
    expect(await take.readCatalogue(CATALOGUE, clock)).toMatchObject({ delisted: 1, same: 1 });
    expect([await isListed("/a"), await isListed("/b")]).toEqual([true, false]);
  });

  test("an operator's file adds and never takes away", async () => {
    const file = (...paths: string[]) => Buffer.from(paths.map((path) => `GET ${seller}${path}\n`).join(""));
    expect(await importFile(take, "list.txt", file("/a", "/b"), clock)).toMatchObject({ form: "lines", appended: 2 });
    expect(await importFile(take, "list.txt", file("/a"), clock)).toMatchObject({ appended: 0, same: 1, delisted: 0 });
  });
});
