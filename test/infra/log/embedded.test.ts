import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { LogBusy, LogClosed, LogRefused, OffsetGone } from "../../../infra/log/log.ts";
import { assertSqliteVersion } from "../../../infra/log/log-file.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { fc } from "../../helpers/histories.ts";
import { logContract, record } from "./contract.ts";

logContract("embedded", async () => {
  const dir = await mkdtemp(join(tmpdir(), "log-"));
  return {
    open: () => openEmbeddedLog(dir, { topics: TOPICS, partitions: 4 }),
    dispose: () => rm(dir, { recursive: true }),
    truncates: true,
  };
});

const many = (n: number, value?: Uint8Array) => Array.from({ length: n }, () => record("asks", 0, value));

describe("embedded log", () => {
  let dir: string;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "log-"));
  });
  afterEach(() => rm(dir, { recursive: true }));

  it("keeps its id and everything else across a restart, in folders made on the way", async () => {
    const deep = join(dir, "a/b/c");
    const first = await openEmbeddedLog(deep, { topics: TOPICS, partitions: 2 });
    const [appended] = await first.append(many(1));
    await first.close();
    const second = await openEmbeddedLog(deep, { topics: TOPICS, partitions: 2 });
    expect(second.id).toBe(first.id);
    expect(second.id).toMatch(/^[0-9a-f]{32}$/);
    expect(await second.read("asks", 0, 0)).toMatchObject([{ eventId: appended!.eventId, offset: 0 }]);
    await second.close();
    const stranger = await openEmbeddedLog(join(dir, "other"), { topics: TOPICS, partitions: 2 });
    expect(stranger.id).not.toBe(first.id);
    await stranger.close();
  });

  it("keeps its partition count whatever it is opened with, and refuses counts that split no bucket", async () => {
    await (await openEmbeddedLog(dir, { topics: TOPICS, partitions: 4 })).close();
    for (const partitions of [8, 2]) {
      const log = await openEmbeddedLog(dir, { topics: [...TOPICS, "added"], partitions });
      expect(log.partitions).toBe(4);
      expect(await log.bounds("added", 3)).toEqual({ start: 0, end: 0 });
      await expect(log.bounds("added", 4)).rejects.toThrow(/no partition 4/);
      await log.close();
    }
    for (const partitions of [0, 3, 128, 1.5, Number.NaN]) {
      await expect(openEmbeddedLog(join(dir, "x"), { topics: TOPICS, partitions })).rejects.toThrow(LogRefused);
    }
  });

  it("refuses files that are no log, or one of a later or an earlier make", async () => {
    await writeFile(join(dir, "log.sqlite"), "not a database, but long enough to look like one".repeat(400));
    await expect(openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 })).rejects.toThrow(
      /damaged or no log; set it aside with log\.sqlite-wal and log\.sqlite-shm/,
    );
    await rm(join(dir, "log.sqlite"));
    await (await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 })).close();
    for (const [format, age] of [
      [3, /newer version/],
      [1, /older version/],
    ] as const) {
      const db = new Database(join(dir, "log.sqlite"));
      db.pragma(`user_version = ${format}`);
      db.close();
      await expect(openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 })).rejects.toThrow(age);
    }
  });

  it.each([
    ["3.45.1", true],
    ["3.51.2", true],
    ["3.9.9", true],
    ["2.99.99", true],
    ["", true],
    ["3.51.3", false],
    ["3.51.10", false],
    ["3.53.2", false],
    ["4.0.0", false],
  ])("SQLite %s is refused: %s", (version, refused) => {
    const check = () => assertSqliteVersion(version);
    if (refused) expect(check).toThrow(LogRefused);
    else expect(check).not.toThrow();
  });

  it("takes appendedAt from its clock at the time of the append", async () => {
    const clock = new FixedClock("2026-03-01T00:00:00.123Z");
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, clock });
    await log.append(many(1));
    clock.set("2026-03-02T00:00:00.456Z");
    await log.append(many(1));
    const found = await log.read("asks", 0, 0);
    expect(found.map((r) => r.appendedAt.toISOString())).toEqual([
      "2026-03-01T00:00:00.123Z",
      "2026-03-02T00:00:00.456Z",
    ]);
    await log.close();
  });

  it("sees another connection's append within 100 ms of waiting", async () => {
    const [reader, writer] = [
      await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 }),
      await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 }),
    ];
    const waits: number[] = [];
    // One that is quick, since a shared machine may stall the others.
    for (let i = 0; i < 100 && !waits.some((ms) => ms < 100); i++) {
      const waiting = reader.read("asks", 0, i, { waitMs: 60_000 });
      await new Promise((resolve) => setTimeout(resolve, 10 * (i % 5)));
      await writer.append(many(1));
      const appended = performance.now();
      expect(await waiting).toHaveLength(1);
      waits.push(performance.now() - appended);
    }
    expect(Math.min(...waits)).toBeLessThan(100);
    await reader.close();
    await writer.close();
  });

  it("gives only readers of the place that grew, and closes under those that wait", async () => {
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 2 });
    let woken = false;
    const elsewhere = log.read("asks", 1, 0, { waitMs: 60_000 }).finally(() => {
      woken = true;
    });
    const here = log.read("asks", 0, 0, { waitMs: 60_000 });
    await log.append(many(1));
    expect(await here).toHaveLength(1);
    expect(woken).toBe(false);
    const closed = expect(elsewhere).rejects.toThrow(LogClosed);
    await log.close();
    await closed;
  });

  it("rejects with `storage` on a full file, stores nothing of the batch, and goes on when there is room", async () => {
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, maxBytes: 2_000_000 });
    const large = () => many(10, Buffer.alloc(20_000));
    let end = 0;
    let refused: unknown;
    for (let i = 0; i < 40 && !refused; i++) {
      await log.append(large()).then(
        (a) => {
          end = a.at(-1)!.offset + 1;
        },
        (e: unknown) => {
          refused = e;
        },
      );
    }
    expect(refused).toMatchObject({ code: "storage", message: expect.stringContaining("no space left") });
    expect(end).toBeGreaterThan(0);
    expect(await log.bounds("asks", 0)).toEqual({ start: 0, end });
    expect(await log.read("asks", 0, end)).toEqual([]);
    expect(await log.read("asks", 0, 0)).toHaveLength(end);
    await log.truncate("asks", 0, end);
    expect((await log.append(large())).map((a) => a.offset)[0]).toBe(end);
    await log.close();
  });

  it("finishes a truncation that a crash cut short", async () => {
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 2 });
    await log.append(many(5_000, new Uint8Array(1)));
    // As a crash leaves it: the start is raised, the rows are still there.
    const db = new Database(join(dir, "log.sqlite"));
    db.prepare("UPDATE topic_partition SET first = 4000 WHERE topic = 'asks' AND partition = 0").run();
    await expect(log.read("asks", 0, 3_999)).rejects.toThrow(OffsetGone);
    await log.truncate("asks", 0, 4_000);
    expect(db.prepare("SELECT count(*) FROM record").pluck().get()).toBe(1_000);
    expect(await log.read("asks", 0, 4_000, { maxRecords: 10_000 })).toHaveLength(1_000);
    db.close();
    await log.close();
  });

  it("gives LogBusy when another process never lets go, and stores nothing", async () => {
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, busyMs: 100 });
    const holder = new Database(join(dir, "log.sqlite"));
    holder.exec("BEGIN IMMEDIATE");
    await expect(log.append(many(1))).rejects.toThrow(LogBusy);
    holder.exec("ROLLBACK");
    holder.close();
    expect(await log.append(many(1))).toMatchObject([{ offset: 0 }]);
    await log.close();
  });

  it("neither acknowledges nor hands out a record before the sync that follows its commit", async () => {
    let letGo = () => {};
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    let committed = -1;
    let begun = () => {};
    const syncing = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const syncFile = () => {
      const db = new Database(join(dir, "log.sqlite"), { readonly: true });
      committed = db.prepare<[], number>("SELECT count(*) FROM record").pluck().get()!;
      db.close();
      begun();
      return held;
    };
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, syncFile });
    const told: string[] = [];
    const calls = [
      log.read("asks", 0, 0, { waitMs: 60_000 }).then(() => told.push("waited")),
      log.append(many(1)).then(() => told.push("appended")),
    ];
    await syncing;
    calls.push(
      log.read("asks", 0, 0).then(() => told.push("read")),
      log.bounds("asks", 0).then(() => told.push("bounds")),
    );
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect([committed, told]).toEqual([1, []]);
    letGo();
    await Promise.all(calls);
    expect(told.sort()).toEqual(["appended", "bounds", "read", "waited"]);
    await log.close();
  });

  it("acknowledges and hands out nothing more after a sync that failed, until it is opened anew", async () => {
    let syncs = 0;
    const syncFile = async () => {
      if (++syncs === 2) throw new Error("EIO");
    };
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, syncFile });
    await log.append(many(1));
    for (let n = 0; n < 2; n++) await expect(log.append(many(1))).rejects.toThrow("EIO");
    await expect(log.read("asks", 0, 0)).rejects.toThrow("EIO");
    await expect(log.bounds("asks", 0)).rejects.toThrow("EIO");
    await log.close();
    const again = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 });
    expect(await again.append(many(1))).toMatchObject([{ offset: 3 }]);
    await again.close();
  });

  it("behaves like plain arrays under any mix of appends, truncations and restarts", async () => {
    const step = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({
          op: fc.constant("append" as const),
          place: fc.nat(3),
          n: fc.integer({ min: 1, max: 4 }),
        }),
      },
      { weight: 2, arbitrary: fc.record({ op: fc.constant("truncate" as const), place: fc.nat(3), n: fc.nat(6) }) },
      { weight: 1, arbitrary: fc.record({ op: fc.constant("restart" as const), place: fc.nat(3), n: fc.nat(1) }) },
    );
    let run = 0;
    const property = fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const own = join(dir, `run${run++}`);
      let log = await openEmbeddedLog(own, { topics: TOPICS, partitions: 2 });
      const model = Array.from({ length: 4 }, () => ({ start: 0, all: [] as string[] }));
      for (const { op, place, n } of steps) {
        const [topic, partition, m] = [place < 2 ? "asks" : "orders", place % 2, model[place]!];
        if (op === "restart") {
          await log.close();
          log = await openEmbeddedLog(own, { topics: TOPICS, partitions: 2 });
        } else if (op === "truncate") {
          m.start = Math.max(m.start, Math.min(n, m.all.length));
          await log.truncate(topic, partition, m.start);
        } else {
          const records = Array.from({ length: n }, () => record(topic, partition));
          await log.append(records);
          m.all.push(...records.map((r) => r.eventId));
        }
        expect(await log.bounds(topic, partition)).toEqual({ start: m.start, end: m.all.length });
        const found = await log.read(topic, partition, m.start);
        expect(found.map((r) => r.eventId)).toEqual(m.all.slice(m.start));
        if (m.start > 0) await expect(log.read(topic, partition, m.start - 1)).rejects.toThrow(OffsetGone);
      }
      await log.close();
    });
    await fc.assert(property, { numRuns: 12 });
  });

  it("reads whatever names and bytes were appended, page after page, within both limits", async () => {
    const name = fc
      .string({ unit: "binary", minLength: 1, maxLength: 12 })
      .filter((text) => !/[\p{Surrogate}\0]/u.test(text));
    const value = fc.uint8Array({ maxLength: 40 });
    const limits = fc.record({
      maxRecords: fc.integer({ min: 30, max: 300 }),
      maxBytes: fc.integer({ min: 400, max: 4_000 }),
    });
    let run = 0;
    const property = fc.asyncProperty(
      fc.array(fc.record({ eventId: name, key: name, value }), { minLength: 1, maxLength: 200 }),
      limits,
      async (made, { maxRecords, maxBytes }) => {
        const log = await openEmbeddedLog(join(dir, `names${run++}`), { topics: TOPICS, partitions: 1 });
        await log.append(made.map((one) => ({ ...one, topic: "asks", partition: 0 })));
        const found = [];
        while (found.length < made.length) {
          const read = await log.read("asks", 0, found.length, { maxRecords, maxBytes });
          const bytes = read.reduce((sum, one) => sum + one.value.byteLength, 0);
          expect(read.length).toBeGreaterThan(0);
          expect(read.length).toBeLessThanOrEqual(maxRecords);
          if (read.length > 1) expect(bytes).toBeLessThanOrEqual(maxBytes);
          found.push(...read);
        }
        const plain = (one: { eventId: string; key: string; value: Uint8Array }) => [
          one.eventId,
          one.key,
          Buffer.from(one.value).toString("hex"),
        ];
        expect(found.map(plain)).toEqual(made.map(plain));
        expect(found.map(({ offset }) => offset)).toEqual(made.map((_, i) => i));
        await log.close();
      },
    );
    await fc.assert(property, { numRuns: 5 });
  });
});
