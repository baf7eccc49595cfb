import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { ZstdPacking } from "../../../infra/zstd.ts";
import { storeMadeFile } from "../../../pipelines/5-archive/filing.ts";
import { followArchive } from "../../../pipelines/5-archive/follow.ts";
import { writeMadeFile } from "../../../pipelines/5-archive/read-back.ts";
import { supersede } from "../../../pipelines/5-archive/supersede.ts";
import type { ArchiveLeaf } from "../../../pipelines/record/leaf.ts";
import { ofKind } from "../../helpers/published.ts";
import { handshake, later, listing } from "../2-ingest/records.ts";
import { ArchiveWorld } from "./world.ts";

const D1 = "2026-11-10";
const FIRST = "2027-03-01T00:00:00.000Z";
const SUBJECT = "liveness_probes";

let world: ArchiveWorld;
beforeEach(async () => {
  world = await ArchiveWorld.open();
});
afterEach(() => world.close());

const parts = () => ({ ...world.archiveParts(), logId: world.ingest.log.id });
const probes = Array.from({ length: 6 }, (_, n) => handshake(`s${n}`, later(`${D1}T02:00:00.000Z`, n * 60_000)));
const standing = async (): Promise<ArchiveLeaf[]> => [
  ...(await world.publisher.current()).archive.currentFilesOf(SUBJECT, D1),
];
const idsOf = async (leaf: ArchiveLeaf): Promise<string[]> =>
  (await world.linesOf(leaf)).map((line) => (JSON.parse(line) as { record_id: string }).record_id);
const follow = async () => followArchive(world.ingest.lake, (await world.publisher.current()).archive);
const rowsInLake = async (): Promise<number> =>
  (await world.ingest.lake.all("FROM event WHERE type = 'handshake'")).length;

/** A file that a faulty version of us would have made of these rows, published, and its rows taken out. */
async function fileWrongly(change: (line: string) => string | null): Promise<ArchiveLeaf> {
  const other = await ArchiveWorld.open();
  try {
    await other.ingest.append(...probes);
    await other.archive(FIRST);
    const [right] = await other.filed();
    const lines = (await other.linesOf(right!)).map(change).filter((line) => line !== null);
    await world.ingest.append(...probes);
    await world.closeDays(FIRST);
    const packing = new ZstdPacking(true);
    await packing.add(Buffer.from(lines.map((line) => `${line}\n`).join("")));
    const made = await writeMadeFile(world.ingest.lake, packing, lines.length);
    const what = { subject: SUBJECT, day: D1, supersedes: null, reason: null, positions: right!.positions } as const;
    const draft = await storeMadeFile(parts(), made, what);
    await world.publisher.publishFilings([{ subject: SUBJECT, day: D1, filesBefore: 0, drafts: [draft] }]);
    return (await standing())[0]!;
  } finally {
    await other.close();
  }
}

describe("a wrong file", () => {
  test("with wrong words in its lines is replaced by the right ones; both stay readable, one stands", async () => {
    const wrong = await fileWrongly((line) => line.replace('"state":"asked"', '"state":"free"'));
    expect(await follow()).toBe(6);
    expect(await rowsInLake()).toBe(0);
    await expect(supersede(parts(), wrong.manifest.id, "  ")).rejects.toThrow(/reason/);
    await expect(supersede(parts(), `arc_${"0".repeat(26)}`, "x")).rejects.toMatchObject({
      ...{ code: "unknown", message: expect.stringMatching(/is not in the archive/) },
    });
    await expect(supersede(parts(), wrong.manifest.id, " ")).rejects.toMatchObject({ code: "usage" });
    const manifest = await supersede(parts(), wrong.manifest.id, "a state was misread");
    expect(manifest.format).toBe(`NDJSON, one liveness probe a line; replaces ${wrong.manifest.id}`);
    const [now, ...more] = await standing();
    expect(more).toEqual([]);
    expect(now).toMatchObject({ supersedes: wrong.manifest.id, reason: "a state was misread", manifest });
    expect((await world.linesOf(now!)).every((line) => line.includes('"state":"asked"'))).toBe(true);
    expect(await idsOf(now!)).toEqual(await idsOf(wrong));
    // The days without a row are still owed, and nothing else.
    expect(await world.archive(FIRST)).toMatchObject({ days: [D1], rows: 0, files: 3, removed: 0 });
    await world.prove();
    await expect(supersede(parts(), wrong.manifest.id, "again")).rejects.toMatchObject({ code: "already" });
    await expect(supersede(parts(), manifest.id, "for no reason")).rejects.toThrow(/comes out with the same bytes/);
    // A new lake follows the standing file only.
    await world.ingest.ingest.rebuild();
    expect(await rowsInLake()).toBe(0);
    expect(await world.ingest.lake.all("SELECT sum(probes)::INTEGER AS n FROM seen")).toEqual([{ n: 6 }]);
  });

  test("that lacks rows: nothing leaves the lake, and all leave it with the file that replaces it", async () => {
    const lacking = probes[2]!.eventId;
    const wrong = await fileWrongly((line) => (line.includes(lacking) ? null : line));
    await expect(follow()).rejects.toMatchObject({ code: "record" });
    expect(await rowsInLake()).toBe(6);
    await supersede(parts(), wrong.manifest.id, "a row was missing");
    const [now] = await standing();
    expect((await idsOf(now!)).sort()).toEqual(probes.map(({ eventId }) => eventId).sort());
    expect(await rowsInLake()).toBe(0);
    await world.archive(FIRST);
    await world.prove();
  });
});

describe("grades of one day in two files", () => {
  const gradesOf = async () => [...(await world.publisher.current()).archive.currentFilesOf("grades", D1)];
  const rowsOf = (files: readonly ArchiveLeaf[]) => files.map(({ manifest }) => manifest.rows);
  /** Grades four endpoints on D1 and closes the days until FIRST. */
  async function gradeFour(): Promise<void> {
    const names = ["a", "b", "c", "d"];
    await world.ingest.append(
      ...names.map((name) => listing(name, `${D1}T00:00:00.000Z`)),
      ...names.map((name) => handshake(name, `${D1}T02:10:00.000Z`)),
    );
    await world.grade(`${D1}T23:00:00.000Z`);
  }

  test("an intact file is not replaced", async () => {
    await gradeFour();
    await world.archive(FIRST, { rowsPerFile: 2 });
    const files = await gradesOf();
    expect(rowsOf(files)).toEqual([2, 2]);
    for (const { manifest } of files)
      await expect(supersede(parts(), manifest.id, "a doubt")).rejects.toMatchObject({ code: "already" });
    expect(await gradesOf()).toEqual(files);
    await world.prove();
  });

  test("a wrong one is replaced by its own rows, without those of the other", async () => {
    await gradeFour();
    await world.closeDays(FIRST);
    const lines = ofKind(await world.leaves(), "grade").map((leaf) => canonicalText(leaf));
    const { end } = (await world.publisher.current()).archive.gradesToFile("grades", D1)!;
    const what = {
      subject: "grades",
      day: D1,
      supersedes: null,
      reason: null,
      positions: { tree: { "0": end } },
    } as const;
    const drafts = [];
    for (const some of [[lines[0]!, lines[1]!.replace('"day"', '"dye"')], lines.slice(2)]) {
      const packing = new ZstdPacking(true);
      await packing.add(Buffer.from(some.map((line) => `${line}\n`).join("")));
      drafts.push(await storeMadeFile(parts(), await writeMadeFile(world.ingest.lake, packing, 2), what));
    }
    await world.publisher.publishFilings([{ subject: "grades", day: D1, filesBefore: 0, drafts }]);
    const [wrong, right] = await gradesOf();
    await expect(supersede(parts(), right!.manifest.id, "a doubt")).rejects.toMatchObject({ code: "already" });
    expect(await supersede(parts(), wrong!.manifest.id, "a member was misspelt")).toMatchObject({ rows: 2 });
    const files = await gradesOf();
    expect(rowsOf(files)).toEqual([2, 2]);
    expect((await Promise.all(files.map((file) => world.linesOf(file)))).flat().sort()).toEqual(lines.sort());
    await world.archive(FIRST);
    await world.prove();
  });
});
