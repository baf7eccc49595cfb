import { spawnSync } from "node:child_process";
import { rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import type { Store } from "../../../infra/store/store.ts";
import { proveIngest, tablesOf } from "./prove-ingest.ts";
import { at, handshake, intent, listing, result } from "./records.ts";
import { openTestLake, openTestWorld, type World } from "./world.ts";

let world: World;
afterEach(() => world.close());
const ROOT = resolve(import.meta.dirname, "../../..");

async function arrive(names: string[]): Promise<void> {
  for (const name of names) {
    const sent = intent(name, at("07:00:00"));
    const answer = result(name, sent.eventId, at("07:00:02"));
    await world.append(listing(name, at("01:00:00")), handshake(name, at("02:00:00")), sent, answer);
  }
}

describe("kill -9", () => {
  test.each(["after the commit", "before the lake's commit"])("%s: the next process makes it whole", async (moment) => {
    world = await openTestWorld();
    await arrive(["a", "b"]);
    const child = join(import.meta.dirname, "killed-child.ts");
    const { signal } = spawnSync(process.execPath, ["--import", "tsx", child, world.dir, moment], { cwd: ROOT });
    expect(signal).toBe("SIGKILL");
    const lake = await openTestLake(join(world.dir, "killed.duckdb"));
    expect(lake.aside).toBeNull();
    await (await world.rival({ lake })).pass();
    await proveIngest({ ...world, lake });
    await world.ingest.pass();
    expect(await tablesOf(lake)).toEqual(await tablesOf(world.lake));
    await lake.close();
  });
});

describe("two ingesters on one partition", () => {
  /** A store whose commits wait until both sides have made their segments: the race is then on. */
  function together(store: Store): Store {
    let waiting: (() => void)[] = [];
    return new Proxy(store, {
      get(target, name) {
        const value = Reflect.get(target, name, target) as unknown;
        if (typeof value !== "function") return value;
        if (name !== "create") return value.bind(target);
        return async (key: string, ...rest: unknown[]) => {
          if (key.includes("/commit/")) {
            await new Promise<void>((go) => {
              waiting.push(go);
              if (waiting.length < 2) return;
              for (const release of waiting) release();
              waiting = [];
            });
          }
          return value.apply(target, [key, ...rest]) as unknown;
        };
      },
    });
  }

  test("one wins, the other drops its file and loads the winner's", async () => {
    world = await openTestWorld();
    const store = together(world.store);
    const mine = await world.rival({ lake: world.lake, privateStore: store });
    const lake = await openTestLake(join(world.dir, "other.duckdb"));
    const theirs = await world.rival({ lake, privateStore: store });
    await world.append(handshake("a", at("01:00:00")), handshake("a", at("02:00:00")));
    const passes = await Promise.all([mine.pass(), theirs.pass()]);
    expect(passes.map(({ rows }) => rows)).toEqual([2, 2]);
    await proveIngest(world);
    await proveIngest({ ...world, lake });
    expect(await world.metrics.text()).toMatch(/touchstone_ingest_races_lost_total\{topic="observations.free"\} 1/);
    const files = (await world.store.list("lake/")).filter(({ key }) => key.endsWith(".parquet"));
    expect(files).toHaveLength(1);
    expect(await tablesOf(lake)).toEqual(await tablesOf(world.lake));
    await lake.close();
  });

  test("taking turns, each loads what the other committed", async () => {
    world = await openTestWorld();
    const lake = await openTestLake(join(world.dir, "other.duckdb"));
    const other = await world.rival({ lake });
    for (const [i, name] of ["a", "b", "c", "d"].entries()) {
      await arrive([name]);
      await (i % 2 ? other : world.ingest).pass();
    }
    await Promise.all([world.ingest.pass(), other.pass()]);
    await proveIngest({ ...world, lake });
    expect(await tablesOf(lake)).toEqual(await tablesOf(world.lake));
    await lake.close();
  });

  test("a lake of another log is set aside, its rows are not ours", async () => {
    world = await openTestWorld();
    await arrive(["a"]);
    await world.ingest.pass();
    const other = await openTestWorld({ lake: world.lake });
    try {
      await other.append(handshake("z", at("01:00:00")));
      await other.ingest.pass();
      expect(world.lake.aside?.reason).toMatch(/another log/);
      await proveIngest(other);
    } finally {
      await other.log.close();
      await other.store.close();
      await rm(other.dir, { recursive: true });
    }
  });
});

describe("a log that is ours alone", () => {
  test("is truncated below what is committed and loaded, and goes on", async () => {
    world = await openTestWorld({ truncateLog: true });
    await arrive(["a", "b"]);
    await world.ingest.pass();
    await arrive(["c"]);
    await world.ingest.pass();
    for (const [topic, partitions] of Object.entries(await world.ingest.positions())) {
      for (const [partition, next] of Object.entries(partitions)) {
        expect(await world.log.bounds(topic, Number(partition))).toEqual({ start: next, end: next });
      }
    }
    const tables = await tablesOf(world.lake);
    await (await world.rival({ lake: world.lake })).rebuild();
    expect(await tablesOf(world.lake)).toEqual(tables);
  });
});
