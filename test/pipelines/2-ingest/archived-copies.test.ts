import { expect, test } from "vitest";
import type { Lake, Statements } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { at, handshake, TERMS } from "./records.ts";
import { openTestWorld, PARTITIONS, type World } from "./world.ts";

/** Second copies of records whose rows were moved to the archive are found by ids that are read from the segments. */
const DAY = "2026-11-10";
const SLOT = "archived";
const first = handshake("a", at("02:00:00", DAY), { terms: TERMS }, SLOT);
const { topic, partition: part } = first;
const filed = { type: "handshake", day: DAY, part };

/** The same planned handshake, written again after a restart, an hour later by its clock. */
function copyAt(time: string) {
  const envelope = JSON.parse(Buffer.from(first.value).toString()) as Parameters<typeof sealEnvelope>[0];
  return sealEnvelope({ ...envelope, observed_at: time }, PARTITIONS);
}

/** Moves the rows of the day to the archive, as pipelines/5-archive does with those of a published file. */
async function moveToArchive(lake: Lake, world: World, id: string): Promise<void> {
  const rows = { ...filed, next: (await world.ingest.positions())[topic]![String(part)]! };
  await lake.transaction(async (tx) => {
    await tx.run(sql("archive/evict:hanging"), rows);
    await tx.run(sql("archive/evict:rows"), rows);
    await tx.run(sql("archive/evict:note"), { ...rows, ids: JSON.stringify([id]), removed: 1 });
  });
}

/** A lake that moves rows of the day each time after ids were fetched, `times` times. */
function movingLake(world: World, times: number): { lake: Lake; moved: () => number } {
  let moved = 0;
  const transaction: Lake["transaction"] = async (work, stage) => {
    let hasFetched = false;
    const watched = (tx: Statements): Statements => ({
      ...tx,
      run: (text, params) => {
        hasFetched ||= text.startsWith("INSERT INTO left_day");
        return tx.run(text, params);
      },
    });
    const result = await world.lake.transaction((tx) => work(watched(tx)), stage);
    if (hasFetched && moved < times) await moveToArchive(world.lake, world, `moved ${moved++}`);
    return result;
  };
  const lake = new Proxy(world.lake, {
    get(target, name) {
      if (name === "transaction") return transaction;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  return { lake, moved: () => moved };
}

const probesOf = async (world: World): Promise<number> =>
  (await world.lake.all<{ n: number }>("SELECT sum(probes)::INTEGER AS n FROM seen"))[0]!.n;

async function withArchivedDay(work: (world: World) => Promise<void>): Promise<void> {
  const world = await openTestWorld();
  try {
    await world.append(first);
    await world.ingest.pass();
    await moveToArchive(world.lake, world, "first");
    await world.append(copyAt(at("03:00:00", DAY)));
    await work(world);
  } finally {
    await world.close();
  }
}

test.each([0, 1, 3])("a copy is found though more rows of its day are moved meanwhile, %i times", (times) =>
  withArchivedDay(async (world) => {
    const { lake, moved } = movingLake(world, times);
    const ingest = await world.rival({ lake });
    expect(await ingest.pass()).toMatchObject({ rows: 0 });
    expect([moved(), await probesOf(world)]).toEqual([times, 1]);
  }),
);

test("rows that are moved without end end the load, which names the day; a later one goes on", () =>
  withArchivedDay(async (world) => {
    const { lake } = movingLake(world, Number.POSITIVE_INFINITY);
    const refused = (await world.rival({ lake })).pass();
    await expect(refused).rejects.toMatchObject({ code: "busy", message: expect.stringContaining(DAY) });
    expect(await (await world.rival({ lake: world.lake })).pass()).toMatchObject({ rows: 0 });
    expect(await probesOf(world)).toBe(1);
  }));
