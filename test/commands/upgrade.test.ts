import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import Database from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FixedClock } from "../../infra/clock.ts";
import { loadKeys } from "../../infra/keys/keys.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { allPartitions } from "../../infra/log/ownership.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createIngest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { readRun } from "../../pipelines/4-publish/runs.ts";
import { WatcherTable } from "../../pipelines/6-notify/watcher-table.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import { headlineOf } from "../../pipelines/published/caps.ts";
import { PERMANENT_TOPICS, TOPICS } from "../../pipelines/record/topics.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { Owner } from "../../pipelines/roles/protocol/owner.ts";
import { readDemo } from "../helpers/demo-record.ts";
import { bytesBelow, foldsOfEarlier, unpackEarlier } from "../helpers/earlier-version.ts";
import { runs } from "../helpers/programs.ts";

/** A data folder that the version before this release left, opened by the commands of today. */
const EARLIER = "debbfed0";
const ROOT = resolve(import.meta.dirname, "../..");
const BASE_URL = "http://localhost:8402";

let dir: string;
/** As it was left, and as the upgrade has it. */
let before: string;
let now: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "upgrade-"));
  [before, now] = [join(dir, "before"), join(dir, "now")];
  for (const to of [before, now]) {
    mkdirSync(to);
    await unpackEarlier(EARLIER, to);
  }
});
afterAll(() => rm(dir, { recursive: true, force: true }));

/** A command over the folder; killed after so many ms where they are given. */
function touchstone(args: string[], killAfterMs?: number): Promise<{ code: number | null; out: string; err: string }> {
  const env = {
    ...process.env,
    TOUCHSTONE_DATA_DIR: now,
    TOUCHSTONE_LOG_PARTITIONS: "2",
    TOUCHSTONE_LOG_LEVEL: "warn",
  };
  const child = spawn(process.execPath, [...runs("touchstone.ts"), ...args], { cwd: ROOT, env });
  const timer = killAfterMs === undefined ? undefined : setTimeout(() => child.kill("SIGKILL"), killAfterMs);
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
  return new Promise((done) =>
    child.once("close", (code) => {
      clearTimeout(timer);
      done({ code, out, err });
    }),
  );
}

/** Every record of a log file, as it stands there. */
function recordsIn(at: string): unknown[] {
  const db = new Database(join(foldersOf(at).log, "log.sqlite"), { readonly: true });
  try {
    return db.prepare("SELECT position, event_id, key, hex(value) AS value, appended_ms FROM record ORDER BY 1").all();
  } finally {
    db.close();
  }
}

describe("the folder of the version before", () => {
  test("is refused by a role, which says the command that brings it forward; nothing was changed in the lake", async () => {
    const { code, err } = await touchstone(["ingest", "--once"]);
    expect([code, err]).toEqual([7, expect.stringContaining("touchstone migrate makes it anew from the segments")]);
    const lake = (at: string) => [...bytesBelow(at)].filter(([path]) => path.startsWith("lake/"));
    expect(lake(now)).toEqual(lake(before));
  });

  test("is brought forward by migrate, killed again and again on its way", async () => {
    // Each later than the one before, until one comes too late: spread over a migration, however fast the machine.
    let killed = 0;
    for (let ms = 150; (await touchstone(["migrate"], ms)).code === null; ms *= 1.3) killed++;
    expect(killed).toBeGreaterThan(2);
    const { code, out } = await touchstone(["migrate"]);
    expect([code, out]).toEqual([0, expect.stringContaining("log: unchanged")]);
    expect((await touchstone(["migrate", "--json"])).out).toContain('"what":"lake","did":"unchanged"');
  });

  test("has lost nothing: log, published objects, held bytes and keys are the same bytes", () => {
    expect(recordsIn(now)).toEqual(recordsIn(before));
    const kept = (at: string) => [...bytesBelow(at)].filter(([path]) => /^(?:public|orders|keys)\//.test(path));
    expect(kept(now)).toEqual(kept(before));
    const hidden = bytesBelow(foldersOf(now).private);
    for (const [path, sha256] of bytesBelow(foldersOf(before).private))
      expect([path, hidden.get(path)]).toEqual([path, sha256]);
  });

  test("is proven whole again, every card recomputed, and every record is in the new lake", async () => {
    // A start of any role loads what a killed migration left undone.
    expect((await touchstone(["ingest", "--once"])).code).toBe(0);
    const record = await readDemo(now, BASE_URL);
    expect(record.leaves).toHaveLength(539);
    for (const kind of ["correction", "reinstated"] as const) expect(record.facts(kind).length).toBeGreaterThan(0);
    // Rows of days that are in the archive had left the old lake too; what leaves of the tree say decides it.
    const old = await openLake(foldersOf(before).lake, { memoryLimit: "512MB", threads: 1, init: [] });
    const rows = await old.all<{ event_id: string }>("SELECT DISTINCT event_id FROM event");
    await old.close();
    expect(rows.length).toBeGreaterThan(1_000);
    expect(rows.filter(({ event_id }) => !record.lakeEvents.has(event_id))).toEqual([]);
    const archived = new Set(
      record.leaves.flatMap((leaf) => (leaf.kind === "archive" ? [leaf.manifest.from.slice(0, 10)] : [])),
    );
    const missing = record.log.filter(
      ({ topic, eventId }) => !PERMANENT_TOPICS.includes(topic as never) && !record.lakeEvents.has(eventId),
    );
    const days = missing.map(({ value }) => JSON.parse(Buffer.from(value).toString("utf8")).observed_at.slice(0, 10));
    expect(days.filter((day) => !archived.has(day))).toEqual([]);
    expect([...record.lakeEvents.values()].every((times) => times === 1)).toBe(true);
  });

  test("has the orders and watchers that its own version knew", async () => {
    const log = await openEmbeddedLog(foldersOf(now).log, { topics: TOPICS, partitions: 2 });
    const [orders, watchers] = [new OrderTable(), new WatcherTable()];
    await new LogTail(log, "orders", (record) => void orders.apply(record)).catchUp();
    await new LogTail(log, "watchers", (record) => void watchers.apply(record)).catchUp();
    await log.close();
    // What later versions added has this value where a record does not hold it.
    const added = new Map<string, unknown>([
      ...["identifier", "problem", "hmacKey", "expect", "judgedBy", "unchargedFault"].map(
        (name) => [name, null] as const,
      ),
      ["failedByPayer", false],
    ]);
    const texts = (values: Iterable<unknown>) =>
      JSON.parse(
        JSON.stringify([...values], (name, value) => {
          if (added.has(name) && value === added.get(name)) return undefined;
          // Of a leg and of a watched endpoint, from records that the earlier version had too.
          if (name === "class" || name === "correctedFrom") return undefined;
          return typeof value === "bigint" ? String(value) : value;
        }),
      );
    expect({ orders: texts(orders.kept()), watchers: texts(watchers.kept()) }).toEqual(foldsOfEarlier(EARLIER));
  });

  test("is graded to the same letters: all of it looked at again, at the moment of its last run, says nothing new", async () => {
    const at = foldersOf(now);
    const [privateStore, publicStore] = [await openDirectoryStore(at.private), await openDirectoryStore(at.public)];
    const log = await openEmbeddedLog(at.log, { topics: TOPICS, partitions: 2 });
    const lake = await openLake(at.lake, { memoryLimit: "512MB", threads: 2, init: INGEST_TABLES });
    try {
      let header = null;
      for (let n = 0, run = await readRun(privateStore, n); run; run = await readRun(privateStore, ++n))
        header = run.header;
      const clock = new FixedClock(header!.now);
      const parts = {
        log,
        privateStore,
        publicStore,
        lake,
        clock,
        logger: createLogger("silent"),
        metrics: createMetrics(),
      };
      const publisher = createPublisher({
        ...parts,
        signers: loadKeys(at.keys),
        origin: "localhost:8402",
        partitions: 2,
      });
      const owner = new Owner({
        ...parts,
        ...{ ingest: createIngest(parts), ownership: allPartitions(2), followed: publisher },
      });
      const { caps, run, leftOut } = await owner.grade(clock.now());
      const { lines } = (run === null ? null : await readRun(privateStore, run)) ?? { lines: [] };
      expect(lines.length + leftOut).toBe(caps);
      // Endpoints with a correction are told of once more; their cards say what the published ones say.
      const letter = ({ tier, band, composite, sample_count }: Record<string, unknown>) => [
        tier,
        band,
        composite,
        sample_count,
      ];
      for (const { cap, cards } of lines) {
        const published = publisher.fold.caps.get(cap)!;
        expect(cards.map(({ card }) => [card.tier, card.band])).toEqual(
          published.cards.map(({ tier, band }) => [tier, band]),
        );
        const { card } = cards.find(({ headline }) => headline)!;
        expect(letter(card)).toEqual(letter(JSON.parse(headlineOf(published)!.text)));
      }
      expect(caps).toBeGreaterThan(8);
    } finally {
      await lake.close();
      await log.close();
      await publicStore.close();
      await privateStore.close();
    }
  });
});
