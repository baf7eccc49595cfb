import { afterEach, beforeEach, expect, test } from "vitest";
import { ArchiveMismatch } from "../../../pipelines/5-archive/errors.ts";
import type { ArchiveStep } from "../../../pipelines/5-archive/filing.ts";
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
