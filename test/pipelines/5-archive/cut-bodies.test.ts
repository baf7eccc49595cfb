import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { openLake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { INGEST_TABLES, lakePositions } from "../../../pipelines/2-ingest/load.ts";
import { packedProbes } from "../../../pipelines/5-archive/probe-files.ts";
import { probeLine } from "../../../pipelines/5-archive/probe-line.ts";
import type { ProbeSubject } from "../../../pipelines/5-archive/subjects.ts";
import { fc } from "../../helpers/histories.ts";
import { handshake, later, TERMS } from "../2-ingest/records.ts";
import { openTestWorld, type World } from "../2-ingest/world.ts";
import { toolProbe } from "./tools.ts";

const DAY = "2026-11-10";
const PROBES = 60;

interface Row {
  event_id: string;
  cap: string;
  t: number;
  body: string;
}

/** Say different things, have a hash or none, and one or the other is written in a way of its own. */
function probesOf(type: string) {
  return Array.from({ length: PROBES }, (_, n) => {
    const time = later(`${DAY}T00:00:00.000Z`, n * 60_000 + n);
    const terms = n % 5 === 0 ? null : { ...TERMS, sha256: (n % 3 ? 7 : n).toString(16).padStart(64, "0") };
    const over = { terms, latency_ms: n % 7 === 0 ? null : n / 4, price: n % 2 ? "0.020000" : null };
    const made = type === "handshake" ? handshake(`s${n % 4}`, time, over) : toolProbe(`s${n % 4}`, time, over);
    const text = Buffer.from(made.value).toString("utf8");
    return n % 11 === 0 ? { ...made, value: Buffer.from(JSON.stringify(JSON.parse(text), null, 1)) } : made;
  });
}

describe.each<[ProbeSubject, string]>([
  ["liveness_probes", "handshake"],
  ["mcp_probes", "mcp.probe"],
])("files of %s", (subject, type) => {
  let world: World;
  let rows: Row[];
  beforeAll(async () => {
    world = await openTestWorld();
    await world.append(...probesOf(type));
    await world.ingest.pass();
    rows = await world.lake.all<Row>(
      "SELECT event_id, cap, epoch_ms(observed_at)::DOUBLE AS t, body FROM event_whole WHERE type = $type ORDER BY cap, event_id",
      { type },
    );
  });
  afterAll(() => world.close());

  const textOf = async (rowsAFile?: number): Promise<string> => {
    const { files } = await packedProbes(world.lake, subject, DAY, await lakePositions(world.lake), rowsAFile);
    const texts = await Promise.all(files.map(async ({ path }) => decompress(await readFile(path)).toString("utf8")));
    return texts.join("");
  };
  const want = (): string => rows.map((row) => `${probeLine(row, type === "mcp.probe")}\n`).join("");

  test("are those of the bodies as they were, whichever of them the lake has cut", async () => {
    expect(rows).toHaveLength(PROBES);
    const [cut] = await world.lake.all<{ n: bigint; shas: bigint }>(
      "SELECT count(shape) AS n, count(sha) AS shas FROM event WHERE type = $type",
      { type },
    );
    expect(Number(cut?.n)).toBeGreaterThan(PROBES / 2);
    expect(Number(cut?.shas)).toBeLessThan(Number(cut?.n));
    expect(await textOf()).toBe(want());
    // Rows that were loaded before bodies were cut, beside others of the same endpoints.
    const some = fc.tuple(
      fc.uniqueArray(fc.nat(PROBES - 1), { maxLength: 12 }),
      fc.constantFrom(undefined, 1, 7, 1_000),
    );
    await fc.assert(
      fc.asyncProperty(some, async ([which, rowsAFile]) => {
        for (const n of which) await makeWhole(rows[n]!);
        expect(await textOf(rowsAFile)).toBe(want());
      }),
      { numRuns: 8 },
    );
    for (const row of rows) await makeWhole(row);
    expect(await textOf()).toBe(want());
  });

  const makeWhole = ({ event_id, body }: Row): Promise<void> =>
    world.lake.run(
      "UPDATE event SET body = $body, shape = NULL, measured = NULL, block = NULL, minute = NULL, sha = NULL WHERE event_id = $event_id",
      { event_id, body },
    );

  test("are not made when the text of a shape is gone", async () => {
    const other = await openTestWorld();
    try {
      await other.append(...probesOf(type));
      await other.ingest.pass();
      await other.lake.run("DELETE FROM shape WHERE id = (SELECT min(id) FROM shape)");
      const made = packedProbes(other.lake, subject, DAY, await lakePositions(other.lake));
      await expect(made).rejects.toThrow(/no such shape/);
      // What the engine had not handed out yet is in nobody's way.
      await other.lake.transaction((tx) => tx.run("DELETE FROM event"));
      expect(await packedProbes(other.lake, subject, DAY, await lakePositions(other.lake))).toMatchObject({
        files: [],
      });
    } finally {
      await other.close();
    }
  });
});

test("a lake from before bodies were cut is filed as ever", async () => {
  const world = await openTestWorld();
  const path = join(world.dir, "old.duckdb");
  const tables = sql("10_tables");
  const from = tables.indexOf("ALTER TABLE event");
  const old = [sql("00_settings"), tables.slice(0, from)];
  const settings = { memoryLimit: "256MB", threads: 1 };
  try {
    const before = await openLake(path, { ...settings, init: old });
    const body = Buffer.from(handshake("a", `${DAY}T01:00:00.000Z`).value).toString("utf8");
    const said = JSON.stringify((JSON.parse(body) as { body: unknown }).body);
    const [id, cap] = [`rec_${"A".repeat(26)}`, `cap_${"B".repeat(26)}`];
    await before.run(
      `INSERT INTO event (event_id, type, key, cap, topic, part, log_offset, observed_at, body)
       VALUES ($id, 'handshake', $cap, $cap, 'observations.free', 0, 3, TIMESTAMP '${DAY} 01:00:00', $said)`,
      { id, cap, said },
    );
    await before.close();
    const lake = await openLake(path, { ...settings, init: INGEST_TABLES });
    try {
      const { files } = await packedProbes(lake, "liveness_probes", DAY, { "observations.free": { "0": 4 } });
      const [file, ...more] = files;
      expect([file?.rows, more]).toEqual([1, []]);
      const line = probeLine({ event_id: id, cap, t: Date.parse(`${DAY}T01:00:00.000Z`), body: said }, false);
      expect(decompress(await readFile(file!.path)).toString("utf8")).toBe(`${line}\n`);
    } finally {
      await lake.close();
    }
  } finally {
    await world.close();
  }
});
