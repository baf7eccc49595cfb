import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { dayOfManifest } from "../../../pipelines/record/archive.ts";
import { Leaf } from "../../../pipelines/record/leaf.ts";
import { ARCHIVE_SUBJECTS } from "../../../pipelines/record/vocabulary.ts";
import { fileKeyOf } from "../../helpers/published.ts";
import { capOf, correction, handshake, intent, later, listing, result, TERMS } from "../2-ingest/records.ts";
import { ArchiveWorld } from "./world.ts";

const worlds: ArchiveWorld[] = [];
const open = async (): Promise<ArchiveWorld> => {
  const world = await ArchiveWorld.open();
  worlds.push(world);
  return world;
};
afterAll(async () => {
  for (const world of worlds) await world.close();
});

const D1 = "2026-11-10";
/** Days older than 110 days: the first one, and both. */
const FIRST = "2027-03-01T00:00:00.000Z";
const BOTH = "2027-03-02T00:00:00.000Z";

function records() {
  const paid = intent("a", `${D1}T07:00:00.000Z`);
  return [
    listing("a", `${D1}T00:00:00.000Z`),
    handshake("b", `${D1}T01:00:00.000Z`),
    handshake("a", `${D1}T13:00:00.000Z`, { price: "0.030000", latency_ms: 12 }),
    handshake("a", `${D1}T19:00:00.000Z`, { state: "wall", wall: true, live: false, price: null, terms: null }),
    handshake("c", `${D1}T23:59:59.999Z`, { fault: "ours", state: "silent", status: null, latency_ms: null }),
    paid,
    result("a", paid.eventId, later(`${D1}T07:00:00.000Z`, 2_000)),
    handshake("a", "2026-11-11T13:00:00.000Z"),
    correction("b", "2026-11-11T14:00:00.000Z"),
  ];
}

const totals = (world: ArchiveWorld) =>
  world.ingest.lake.all(
    "SELECT * FROM seen JOIN (SELECT cap, list_sort(list(asked_micro)) FROM quoted GROUP BY cap) USING (cap) ORDER BY cap",
  );
const idsInLake = async (world: ArchiveWorld): Promise<string[]> =>
  (await world.ingest.lake.all<{ event_id: string }>("SELECT event_id FROM event ORDER BY event_id")).map(
    (row) => row.event_id,
  );

describe("the archive of a day", () => {
  let world: ArchiveWorld;
  let before: unknown;
  beforeAll(async () => {
    world = await open();
    await world.ingest.append(...records());
    await world.ingest.ingest.pass();
    before = await totals(world);
  });

  test("is not made before 110 days after its end", async () => {
    expect(await world.archive("2027-02-28T23:59:59.999Z")).toEqual({ days: [], files: 0, rows: 0, removed: 0 });
    expect(await world.filed()).toEqual([]);
  });

  test("has a file for each subject, one of no row included, all in one publication", async () => {
    expect(await world.archive(FIRST)).toEqual({ days: [D1], files: 4, rows: 4, removed: 4 });
    const leaves = await world.filed();
    expect(leaves.map(({ manifest }) => [manifest.subject, manifest.rows])).toEqual([
      ["liveness_probes", 4],
      ["mcp_probes", 0],
      ["grades", 0],
      ["mcp_grades", 0],
    ]);
    expect(leaves.map(({ index }) => index)).toEqual([0, 1, 2, 3].map((n) => leaves[0]!.index + n));
    await world.prove();
  });

  test("has manifests that say where a file is served and when it was read back", async () => {
    for (const leaf of await world.filed()) {
      expect(leaf.manifest).toMatchObject({
        file: `https://record.example/${fileKeyOf(leaf)}`,
        verified_at: FIRST,
      });
    }
  });

  test("has leaves that read the same for good: the first one is the golden one, byte for byte", async () => {
    const golden = readFileSync(new URL("./archive-leaf.golden.json", import.meta.url), "utf8");
    const [first] = await world.filed();
    expect(`${canonicalText(first)}\n`).toBe(golden);
    expect(Leaf.parse(JSON.parse(golden))).toMatchObject({ kind: "archive", supersedes: null, reason: null });
  });

  test("has one line a probe, with what it met", async () => {
    const [probes] = await world.filed();
    const lines = await world.linesOf(probes!);
    const values = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    const own = values.filter(({ capability_id }) => capability_id === capOf("a"));
    expect(own).toHaveLength(2);
    expect(own).toContainEqual({
      ...{ amount: "0.030000", asset: "0xasset", capability_id: capOf("a"), counts: true, fault: null, latency_ms: 12 },
      ...{
        networks: ["eip155:8453"],
        observed_at: `${D1}T13:00:00.000Z`,
        protocols: ["x402"],
        state: "asked",
        status: 402,
      },
      ...{ record_id: records()[2]!.eventId, terms_sha256: TERMS.sha256 },
    });
    expect(own).toContainEqual(
      expect.objectContaining({ fault: "blocked", counts: true, protocols: [], networks: [], asset: null }),
    );
    expect(values.find(({ capability_id }) => capability_id === capOf("c"))).toMatchObject({
      fault: "ours",
      counts: false,
      status: null,
      latency_ms: null,
    });
  });

  test("leaves the lake with exactly its rows; paid calls and totals stay", async () => {
    const [probes] = await world.filed();
    const gone = (await world.linesOf(probes!)).map((line) => (JSON.parse(line) as { record_id: string }).record_id);
    const want = records()
      .map(({ eventId }) => eventId)
      .filter((id) => !gone.includes(id));
    expect(await idsInLake(world)).toEqual(want.sort());
    expect(await totals(world)).toEqual(before);
    const left = await world.ingest.lake.all("SELECT obs_id FROM every_sample ORDER BY obs_id");
    expect(left).toHaveLength(2);
  });

  test("is made once, and the next day follows without a gap", async () => {
    expect((await world.archive(FIRST)).files).toBe(0);
    expect(await world.archive(BOTH)).toEqual({ days: ["2026-11-11"], files: 4, rows: 1, removed: 1 });
    const subjects = (await world.filed()).map(({ manifest }) => `${manifest.subject} ${dayOfManifest(manifest)}`);
    expect(subjects).toEqual(
      [D1, "2026-11-11"].flatMap((day) => ARCHIVE_SUBJECTS.map((subject) => `${subject} ${day}`)),
    );
    await world.prove();
  });

  test("does not come back when the lake is loaded anew, and its totals do", async () => {
    const rows = await idsInLake(world);
    await world.ingest.ingest.rebuild();
    expect(await idsInLake(world)).toEqual(rows);
    expect(await totals(world)).toEqual(before);
    expect((await world.archive(BOTH)).files).toBe(0);
  });

  test("does not come back with a segment that is joined again, or as a copy", async () => {
    const rows = await idsInLake(world);
    for (let n = 0; n < 8; n++) {
      await world.ingest.append(listing("a", later(BOTH, n)));
      await world.ingest.ingest.pass();
    }
    await world.ingest.append(records()[1]!);
    await world.ingest.ingest.pass();
    const { after, before: files } = await world.ingest.ingest.tidy(2);
    expect(after).toBeLessThan(files);
    expect((await idsInLake(world)).filter((id) => !rows.includes(id))).toHaveLength(8);
    expect((await world.archive(BOTH)).files).toBe(0);
    expect(await totals(world)).toEqual(before);
  });

  test("gets a further file for rows that came late; both stand, and no row is in both", async () => {
    const late = handshake("a", `${D1}T14:00:00.000Z`, { price: "0.040000" });
    await world.ingest.append(late, records()[1]!);
    expect(await world.archive(BOTH)).toEqual({ days: [D1], files: 1, rows: 1, removed: 1 });
    const leaves = (await world.filed()).filter(
      ({ manifest }) => manifest.subject === "liveness_probes" && dayOfManifest(manifest) === D1,
    );
    expect(leaves.map(({ supersedes }) => supersedes)).toEqual([null, null]);
    const ids = (await Promise.all(leaves.map((leaf) => world.linesOf(leaf))))
      .flat()
      .map((line) => JSON.parse(line).record_id);
    expect(new Set(ids).size).toBe(5);
    expect(ids).toContain(late.eventId);
    expect(await totals(world)).not.toEqual(before);
    const now = await totals(world);
    await world.ingest.ingest.rebuild();
    expect(await totals(world)).toEqual(now);
    // The evidence has the late row as well.
    await world.prove();
    expect(
      (await world.leaves()).filter((leaf) => leaf.kind === "evidence" && leaf.day === D1 && leaf.freeze === 1),
    ).not.toEqual([]);
  });
});

test("totals of a new lake count a record once, also when records of several partitions share an offset", async () => {
  const world = await open();
  const names = Array.from({ length: 12 }, (_, n) => `seller-${n}`);
  await world.ingest.append(...names.map((name) => handshake(name, `${D1}T01:00:00.000Z`)));
  await world.archive(FIRST);
  const counted = () => world.ingest.lake.all("SELECT cap, probes::INTEGER AS probes FROM seen ORDER BY cap");
  const before = await counted();
  expect(before).toEqual(
    names.map((name) => ({ cap: capOf(name), probes: 1 })).sort((a, b) => (a.cap < b.cap ? -1 : 1)),
  );
  await world.ingest.ingest.rebuild();
  expect(await counted()).toEqual(before);
  // The same for what came late and is in no file yet.
  await world.ingest.append(...names.map((name) => handshake(name, `${D1}T02:00:00.000Z`)));
  await world.ingest.ingest.pass();
  await world.archive(FIRST);
  expect(await counted()).toEqual(before.map((row) => ({ ...(row as object), probes: 2 })));
  await world.ingest.ingest.rebuild();
  expect(await counted()).toEqual(before.map((row) => ({ ...(row as object), probes: 2 })));
});

test("a copy that was observed behind midnight is a copy: while its original is here, when it left, and in a new lake", async () => {
  const world = await open();
  const original = handshake("a", `${D1}T23:59:59.000Z`);
  const text = Buffer.from(original.value).toString("utf8");
  const copy = { ...original, value: Buffer.from(text.replace(`${D1}T23:59:59.000Z`, "2026-11-11T00:00:01.000Z")) };
  await world.ingest.append(original, handshake("b", "2026-11-11T05:00:00.000Z"));
  await world.ingest.ingest.pass();
  await world.ingest.append(copy);
  const counted = () => world.ingest.lake.all("SELECT sum(probes)::INTEGER AS n FROM seen");
  expect(await world.archive(FIRST)).toMatchObject({ days: [D1], rows: 1, removed: 1 });
  await world.ingest.append(copy);
  await world.ingest.ingest.pass();
  expect([await counted(), await idsInLake(world)]).toMatchObject([[{ n: 2 }], { length: 1 }]);
  await world.ingest.ingest.rebuild();
  expect([await counted(), await idsInLake(world)]).toMatchObject([[{ n: 2 }], { length: 1 }]);
  expect(await world.archive(BOTH)).toMatchObject({ days: ["2026-11-11"], rows: 1, removed: 1 });
  await world.ingest.append(copy, original);
  expect(await world.archive(BOTH)).toMatchObject({ files: 0, removed: 0 });
  expect(await counted()).toEqual([{ n: 2 }]);
});
