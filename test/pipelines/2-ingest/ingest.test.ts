import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { NotOurLog } from "../../../infra/chain/commit.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../../infra/log/log.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { failing } from "./failing.ts";
import { proveIngest, tablesOf } from "./prove-ingest.ts";
import { ask, at, capOf, correction, garbage, handshake, intent, listing, result, settlement } from "./records.ts";
import { openTestLake, openTestWorld, PARTITIONS, type World } from "./world.ts";

let world: World;
afterEach(() => world.close());

/** A little of everything, in both partitions. */
function batch(day = "2026-11-10"): NewRecord[] {
  return ["a", "b", "c", "d", "e"].flatMap((name) => {
    const sent = intent(name, at("07:00:00", day));
    return [
      listing(name, at("01:00:00", day)),
      handshake(name, at("02:00:00", day)),
      handshake(name, at("08:00:00", day)),
      sent,
      result(name, sent.eventId, at("07:00:02", day)),
      settlement(name, sent.eventId, at("07:00:05", day)),
    ];
  });
}

describe("rows in, rows out", () => {
  test("once each, with what the readers need", async () => {
    world = await openTestWorld();
    await world.append(
      ...batch(),
      ask("z", at("01:00:00")),
      correction("a", at("09:00:00"), { id: "c", record_id: null }),
    );
    const { rows } = await world.ingest.pass();
    expect(rows).toBe(32);
    await proveIngest(world);
    expect(await world.lake.all("FROM every_sample")).toHaveLength(15);
    // What was only asked about is not in the record yet.
    expect(await world.lake.all("SELECT DISTINCT cap FROM dirty")).toHaveLength(5);
    expect((await world.lake.all<{ cap: string }>("SELECT cap FROM site WHERE domain = 'a.example'"))[0]!.cap).toBe(
      capOf("a"),
    );
  });

  test("a pass with nothing new reads nothing and writes nothing", async () => {
    world = await openTestWorld();
    await world.append(...batch());
    await world.ingest.pass();
    const before = await world.store.list("lake/");
    expect(await world.ingest.pass()).toMatchObject({ rows: 0 });
    expect(await world.store.list("lake/")).toEqual(before);
  });

  test("copies by event id are dropped, in one batch and across batches", async () => {
    world = await openTestWorld();
    const all = batch();
    await world.append(...all, ...all);
    await world.ingest.pass();
    await world.append(...all);
    const { rows } = await world.ingest.pass();
    expect(rows).toBe(0);
    await proveIngest(world);
  });
});

describe("what cannot be read", () => {
  test("is kept with its reason and its bytes, and redriven once readers take it", async () => {
    world = await openTestWorld();
    const future = JSON.stringify({ v: 99, later: true });
    await world.append(
      handshake("a", at("02:00:00")),
      garbage("a", "{"),
      garbage("a", future),
      handshake("a", at("08:00:00")),
    );
    await world.ingest.pass();
    await proveIngest(world);
    expect(await world.lake.all("FROM every_sample")).toHaveLength(2);
    expect(await world.ingest.redrive()).toEqual({ found: 0, left: 2 });
    await proveIngest(world);
  });
});

describe("the lake is a cache", () => {
  test("rebuilt from the chain alone it is the same", async () => {
    world = await openTestWorld();
    await world.append(
      ...batch(),
      ...batch("2026-11-11"),
      correction("b", at("09:00:00"), { id: "c", record_id: null }),
    );
    await world.ingest.pass();
    const before = await tablesOf(world.lake);
    await world.ingest.rebuild();
    expect(await tablesOf(world.lake)).toEqual(before);
    await proveIngest(world);
  });

  test("another ingester's lake over the same chain is the same, whoever commits first", async () => {
    world = await openTestWorld();
    const rival = await world.rival();
    await world.append(...batch());
    await Promise.all([world.ingest.pass(), rival.pass()]);
    await world.append(...batch("2026-11-11"));
    await Promise.all([rival.pass(), world.ingest.pass()]);
    await Promise.all([rival.pass(), world.ingest.pass()]);
    await proveIngest(world);
  });

  test("holes that the log made stop everything until they are accepted", async () => {
    world = await openTestWorld();
    await world.append(...batch());
    await world.ingest.pass();
    await world.append(...batch("2026-11-11"));
    for (let partition = 0; partition < 2; partition++) {
      const { end } = await world.log.bounds("observations.free", partition);
      await world.log.truncate("observations.free", partition, end);
    }
    const next = await world.rival({ lake: world.lake });
    await expect(next.pass()).rejects.toMatchObject({ name: "RecordsLost" });
    const holes = await next.acceptGap();
    expect(holes.length).toBeGreaterThan(0);
    expect(holes.every((hole) => hole.topic === "observations.free" && hole.next > hole.first)).toBe(true);
    await next.pass();
    expect(await next.acceptGap()).toEqual([]);
  });
});

describe("a log that loses its newest records while the process runs", () => {
  const free = (minute: number) => handshake("a", at(`02:${String(minute).padStart(2, "0")}:00`));
  const { topic, partition } = free(0);

  /** Four records are committed; then the log holds the first `kept` of them, and `others` after these. */
  async function shortened(kept: number, others: number): Promise<void> {
    const dir = await mkdtemp(join(tmpdir(), "shorter-"));
    onTestFinished(() => rm(dir, { recursive: true, force: true }));
    const shorter = await openEmbeddedLog(dir, { topics: TOPICS, partitions: PARTITIONS });
    const longer = await openEmbeddedLog(join(dir, "longer"), { topics: TOPICS, partitions: PARTITIONS });
    const log: Log = {
      ...{ id: longer.id, partitions: PARTITIONS, append: (records) => longer.append(records) },
      ...{ read: longer.read.bind(longer), bounds: longer.bounds.bind(longer), truncate: async () => {} },
      close: async () => {
        await Promise.all([longer.close(), shorter.close()]);
      },
    };
    world = await openTestWorld({ log });
    await world.append(free(0), free(1), free(2), free(3));
    expect(await world.ingest.pass()).toMatchObject({ rows: 4 });
    await shorter.append([0, 1, 2, 3].slice(0, kept).map(free));
    await shorter.append(Array.from({ length: others }, (_, i) => free(10 + i)));
    Object.assign(log, { read: shorter.read.bind(shorter), bounds: shorter.bounds.bind(shorter) });
  }

  test.each([
    { what: "shorter than what was committed", kept: 2, others: 1, says: /ends at 3, 4 was reached/ },
    { what: "grown past it with other records", kept: 2, others: 4, says: /record 3 is rec_\w+, it was rec_/ },
    { what: "begun anew", kept: 0, others: 5, says: /record 3 is/ },
  ])("$what: it is refused in each pass, and nothing of it is committed", async ({ kept, others, says }) => {
    await shortened(kept, others);
    const before = await world.store.list("lake/");
    for (let passes = 0; passes < 2; passes++) {
      const refused = await world.ingest.pass().catch((e: unknown) => e);
      expect(refused).toBeInstanceOf(NotOurLog);
      expect(String(refused)).toContain(`${topic}/${partition}`);
      expect(String(refused)).toMatch(says);
    }
    expect(await world.store.list("lake/")).toEqual(before);
    expect(await world.ingest.positions()).toMatchObject({ [topic]: { [partition]: 4 } });
  });

  test("as it was, it is read on", async () => {
    await shortened(4, 2);
    expect(await world.ingest.pass()).toMatchObject({ rows: 2 });
  });
});

const MOMENTS = ["before", "after"] as const;
/** Writes of a pass over `batch()`: segment and commit of three topics in two partitions. */
const WRITES = 12;
/** Its transactions: six topics in two partitions are looked at first, then its six segments are loaded together. */
const LOOKS = 12;
const TRANSACTIONS = 13;
const each = (n: number) =>
  Array.from({ length: n }, (_, i) => i).flatMap((i) => MOMENTS.map((when) => [i, when] as const));

describe("a pass that breaks off is made good by the next one", () => {
  test.each(each(WRITES))("store write %i, %s it", async (n, when) => {
    world = await openTestWorld();
    await world.append(...batch());
    const { broken, reached } = failing(world.store, { method: "create", n, when });
    const first = await world.rival({ privateStore: broken, lake: world.lake });
    await first.pass().catch(() => {});
    expect(reached()).toBe(true);
    // A new process over the same disk.
    const again = await openDirectoryStore(`${world.dir}/private`);
    const second = await world.rival({ privateStore: again, lake: world.lake });
    await second.pass();
    await proveIngest(world);
    expect(await world.lake.all("FROM every_sample")).toHaveLength(15);
    await again.close();
  });

  test.each(each(TRANSACTIONS).filter(([n]) => n >= LOOKS - 1))("lake transaction %i, %s it", async (n, when) => {
    world = await openTestWorld();
    await world.append(...batch());
    const { broken, reached } = failing<Lake>(world.lake, { method: "transaction", n, when });
    const first = await world.rival({ lake: broken });
    await first.pass().catch(() => {});
    expect(reached()).toBe(true);
    const second = await world.rival({ lake: world.lake });
    await second.pass();
    await proveIngest(world);
    expect(await world.lake.all("FROM every_sample")).toHaveLength(15);
  });

  test("the tables above end where a pass ends", async () => {
    world = await openTestWorld();
    await world.append(...batch());
    const store = failing(world.store, { method: "create", n: WRITES, when: "before" });
    const lake = failing<Lake>(world.lake, { method: "transaction", n: TRANSACTIONS, when: "before" });
    const whole = await world.rival({ privateStore: store.broken, lake: lake.broken });
    await whole.pass();
    expect([store.reached(), lake.reached()]).toEqual([false, false]);
  });

  test("a lake file that is no database is set aside and loaded again", async () => {
    world = await openTestWorld();
    await world.append(...batch());
    await world.ingest.pass();
    const before = await tablesOf(world.lake);
    await world.lake.replace("damaged on purpose");
    const next = await world.rival({ lake: world.lake });
    await next.pass();
    expect(await tablesOf(world.lake)).toEqual(before);
    expect(world.lake.aside?.reason).toContain("damaged on purpose");
    const other = await openTestLake(`${world.dir}/other.duckdb`);
    await other.close();
  });
});
