import { readFile } from "node:fs/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { lakePositions } from "../../../pipelines/2-ingest/load.ts";
import { ArchiveMismatch } from "../../../pipelines/5-archive/errors.ts";
import type { ArchiveStep } from "../../../pipelines/5-archive/filing.ts";
import { packedProbes } from "../../../pipelines/5-archive/probe-files.ts";
import { handshake } from "../2-ingest/records.ts";
import { ArchiveWorld } from "./world.ts";

const D1 = "2026-11-10";
const DUE = "2027-03-01T00:00:00.000Z";
const HOURS = ["01", "07", "13", "19"];

let world: ArchiveWorld;
beforeEach(async () => {
  world = await ArchiveWorld.open();
  await world.ingest.append(...HOURS.map((hour) => handshake("a", `${D1}T${hour}:00:00.000Z`)));
});
afterEach(() => world.close());

const ids = async (): Promise<string[]> =>
  (await world.ingest.lake.all<{ id: string }>("SELECT event_id AS id FROM event ORDER BY id")).map(({ id }) => id);

/** Something happens to the lake when the files are published and no row has left it. */
const meanwhile = (statement: string) => ({
  onStep: async (step: ArchiveStep) => {
    if (step === "published") await world.ingest.lake.run(statement);
  },
});
const OTHER = `rec_${"0".repeat(26)}`;
const SWAPPED = `UPDATE event SET event_id = '${OTHER}' WHERE observed_at = TIMESTAMP '${D1} 01:00:00'`;

test.each([[undefined], [3]])(
  "rows leave by where they stood when their files were made, %s a file",
  async (rowsAFile) => {
    expect(await world.archive(DUE, { rowsAFile })).toMatchObject({ rows: 4, removed: 4 });
    expect(await ids()).toEqual([]);
  },
);

test.each([[undefined], [3]])("nothing leaves when another row stands there, %s a file", async (rowsAFile) => {
  await expect(world.archive(DUE, { rowsAFile, ...meanwhile(SWAPPED) })).rejects.toThrow(ArchiveMismatch);
  expect(await ids()).toContain(OTHER);
  if (!rowsAFile) expect(await ids()).toHaveLength(4);
});

test.each([[undefined], [3]])(
  "a row that came to stand there stays, and no other does, %s a file",
  async (rowsAFile) => {
    const further = `INSERT INTO event SELECT * REPLACE ('${OTHER}' AS event_id) FROM event WHERE observed_at = TIMESTAMP '${D1} 01:00:00'`;
    let rows: string[] = [];
    const { onStep } = meanwhile(further);
    await world.archive(DUE, {
      rowsAFile,
      onStep: async (step) => {
        // Once: the row that stays gets a file of its own.
        if (rows.length > 0) return;
        await onStep(step);
        if (step === "taken out") rows = await ids();
      },
    });
    expect(rows).toEqual([OTHER]);
  },
);

test("count and checksum of each file are those of its lines, wherever it ends", async () => {
  const { lake } = world.ingest;
  await world.ingest.append(
    ...["b", "c", "d"].flatMap((name) => HOURS.map((hour) => handshake(name, `${D1}T${hour}:00:00.000Z`))),
  );
  await world.ingest.ingest.pass();
  // 16 rows of 4 endpoints: files that end within one, behind one, hold two and a half, all.
  for (const rowsAFile of [1, 3, 4, 6, 10, 15, 16]) {
    const { files } = await packedProbes(lake, "liveness_probes", D1, await lakePositions(lake), rowsAFile);
    expect(files).toHaveLength(Math.ceil(16 / rowsAFile));
    for (const { path, held } of files) {
      const lines = decompress(await readFile(path))
        .toString()
        .trimEnd()
        .split("\n");
      const told = JSON.stringify(lines.map((line) => (JSON.parse(line) as { record_id: string }).record_id));
      const [want] = await lake.all<{ look: string }>(
        `SELECT bit_xor(hash(id))::VARCHAR AS look FROM (SELECT unnest(from_json($told, '["VARCHAR"]')) AS id)`,
        { told },
      );
      expect([rowsAFile, held!.rows, held!.look]).toEqual([rowsAFile, lines.length, want!.look]);
    }
  }
});
