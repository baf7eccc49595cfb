import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compress, decompress } from "zstd-napi";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { PublicConflict } from "../../../pipelines/4-publish/writes.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { ofKind, valuesAt } from "../../helpers/published.ts";
import {
  CAME,
  capOf,
  correction,
  followup,
  handshake,
  intent,
  later,
  NOTHING,
  result,
  settlement,
} from "../2-ingest/records.ts";
import { type Fault, Faults, type Outcome } from "../4-publish/faults.ts";
import { TRUST } from "../4-publish/world.ts";
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

const T = "2026-11-10T07:00:00.000Z";
/** A paid call that went well, its money final the day after; a probe of the same and of two other sellers. */
function dayOne() {
  const paid = intent("a", T);
  return [
    handshake("b", "2026-11-10T01:00:00.000Z"),
    paid,
    result("a", paid.eventId, later(T, 2_000), { checks: [{ name: "status", ok: true }] }),
    settlement("a", paid.eventId, later(T, 3_000), { final: false }),
    handshake("a", "2026-11-10T13:00:00.000Z"),
    handshake("c", "2026-11-10T13:00:00.000Z", {
      live: false,
      state: "silent",
      terms: null,
      price: null,
      pay_to: null,
    }),
    followup("a", paid.eventId, "2026-11-11T02:00:00.000Z", { kind: "finality" }),
    correction("b", "2026-11-11T09:00:00.000Z"),
  ];
}
const CLOSED = "2026-11-12T06:00:00.000Z";

const filed = async (world: ArchiveWorld) => ofKind(await world.leaves(), "evidence");

describe("the evidence of a day", () => {
  let world: ArchiveWorld;
  beforeAll(async () => {
    world = await open();
    await world.ingest.append(...dayOne());
  });

  test("is not made before six hours after its end", async () => {
    expect(await world.closeDays("2026-11-11T05:59:59.999Z")).toEqual({ days: [], files: 0, rows: 0 });
    expect(await filed(world)).toEqual([]);
  });

  test("has one line a sample, with its row, terms, checks and hashes", async () => {
    expect(await world.closeDays(CLOSED)).toMatchObject({ days: ["2026-11-10", "2026-11-11"] });
    await world.prove();
    const lines = await world.evidenceLines();
    expect(lines.filter((line) => line.obs_id)).toHaveLength(4);
    const [paid] = lines.filter((line) => line.kind === 1);
    expect(paid).toMatchObject({
      ...{
        capability_id: capOf("a"),
        topic: "observations.paid",
        t: T,
        payer: null,
        w: 1,
        input: "example",
        attempt: 0,
      },
      ...{ live: true, honest: true, delivered: true, refunded: false, delivery: 1, schema_ok: true, latency_ms: 500 },
      ...{ price: 0.02, planned_at: T, blind: false, wallet: "known-1", watched: true, fault: null, settled: false },
      ...{ checks: [{ name: "status", ok: true }], settlement: { tx: "0xtx", final: false } },
      ...{ request_sha256: "ab".repeat(32), response_sha256: "ab".repeat(32), terms: { protocols: ["x402"] } },
    });
    expect(lines.find((line) => line.capability_id === capOf("c"))).toMatchObject({ live: false, state: "silent" });
    // What signs or could sign a payment stays with us.
    expect(JSON.stringify(lines)).not.toContain("c2lnbmVk");
  });

  test("keeps how a row read before its last record", async () => {
    const [paid] = (await world.evidenceLines()).filter((line) => line.kind === 1);
    expect(paid!.before).toMatchObject([
      { upto: 1, fault: "ours", delivered: false, delivery: null, response_sha256: null },
      { upto: 2, settlement: null },
    ]);
    expect(paid).toMatchObject({ first: 0, position: 2 });
  });

  test("has what came a day later in the file of that day", async () => {
    const later = (await filed(world)).filter(({ day }) => day === "2026-11-11");
    const lines = (await Promise.all(later.map((leaf) => valuesAt(world.publicStore, leaf.key!)))).flat();
    const amended = { topic: "observations.paid", position: 3, observed_at: "2026-11-11T02:00:00.000Z" };
    expect(lines).toContainEqual(expect.objectContaining({ ...amended, field: "settled", value: true }));
    const corrected = lines.find((line) => line.field === "correction");
    expect(corrected).toMatchObject({ of: capOf("b"), topic: "corrections", value: { id: "c1", fault: "ours" } });
  });

  test("is made once: the job finds nothing to do, also from another process", async () => {
    const before = await filed(world);
    expect((await world.closeDays(CLOSED)).days).toEqual([]);
    const stores = { privateStore: world.ingest.store, publicStore: world.publicStore };
    expect((await world.closeDaysOver(CLOSED, stores)).days).toEqual([]);
    expect(await filed(world)).toEqual(before);
  });

  test("gets a further file for records that came after it was closed, and says when a day had none", async () => {
    await world.ingest.append(handshake("a", "2026-11-10T20:00:00.000Z"), handshake("b", "2026-11-14T01:00:00.000Z"));
    expect((await world.closeDays("2026-11-15T06:00:00.000Z")).days).toEqual([
      ...["2026-11-10", "2026-11-12", "2026-11-13", "2026-11-14"],
    ]);
    await world.prove();
    const leaves = await filed(world);
    const late = leaves.filter(({ day, freeze }) => day === "2026-11-10" && freeze === 1);
    expect(late).toMatchObject([{ rows: 1, part: 1, parts: 1 }]);
    expect(leaves.filter(({ holds }) => holds === "nothing").map(({ day }) => day)).toEqual([
      "2026-11-12",
      "2026-11-13",
    ]);
  });

  test("catches up with a long pause in several publications", async () => {
    await world.ingest.append(handshake("a", "2026-12-20T20:00:00.000Z"));
    const { days } = await world.closeDays("2026-12-21T06:00:00.000Z");
    expect([days.length, days[0], days.at(-1)]).toEqual([36, "2026-11-15", "2026-12-20"]);
    await world.prove();
  });

  test("is made for a day before the first one as well, and the days that follow go on", async () => {
    await world.ingest.append(handshake("a", "2026-10-02T20:00:00.000Z"), handshake("b", "2026-12-21T20:00:00.000Z"));
    expect((await world.closeDays("2026-12-22T06:00:00.000Z")).days).toEqual(["2026-10-02", "2026-12-21"]);
    await world.ingest.append(handshake("c", "2026-10-02T21:00:00.000Z"), handshake("c", "2026-10-01T21:00:00.000Z"));
    expect((await world.closeDays("2026-12-22T06:00:00.000Z")).days).toEqual(["2026-10-01", "2026-10-02"]);
    await world.prove();
    const early = (await filed(world)).filter(({ day }) => day < "2026-11-01");
    expect(early.map(({ day, freeze, rows }) => [day, freeze, rows])).toEqual([
      ["2026-10-02", 0, 1],
      ["2026-10-01", 0, 1],
      ["2026-10-02", 1, 1],
    ]);
  });
});

test("the same records make the same files, in whatever order they came and however they were ingested", async () => {
  const [one, two] = [await open(), await open()];
  const records = dayOne();
  await one.ingest.append(...records);
  await one.closeDays(CLOSED);
  for (const record of records) {
    await two.ingest.append(record);
    await two.ingest.ingest.pass();
  }
  await two.closeDays(CLOSED);
  const keys = async (world: ArchiveWorld) =>
    (await filed(world)).map(({ key, sha256, positions }) => ({ key, sha256, positions }));
  expect(await keys(two)).toEqual(await keys(one));
  expect((await keys(one)).length).toBeGreaterThan(3);
});

test("a file that another compressor packed is adopted, one with other lines is a conflict", async () => {
  const [made, adopting, refusing] = [await open(), await open(), await open()];
  for (const world of [made, adopting, refusing]) await world.ingest.append(...dayOne());
  await made.closeDays(CLOSED);
  const [leaf] = await filed(made);
  const text = decompress((await made.publicStore.get(leaf!.key!))!.bytes);
  const other = compress(text, { compressionLevel: 19, checksumFlag: true });
  await adopting.publicStore.create(leaf!.key!, other);
  await adopting.closeDays(CLOSED);
  await adopting.prove();
  const [theirs] = await filed(adopting);
  expect(theirs).toMatchObject({ key: leaf!.key, bytes: other.length, unpacked_sha256: leaf!.unpacked_sha256 });
  expect(theirs!.sha256).not.toBe(leaf!.sha256);
  await refusing.publicStore.create(leaf!.key!, compress(Buffer.from("{}\n")));
  await expect(refusing.closeDays(CLOSED)).rejects.toThrow(PublicConflict);
  expect(await filed(refusing)).toEqual([]);
});

describe("a process that dies at any write of it", () => {
  let world: ArchiveWorld;
  let base: string;
  const OUTCOMES: Outcome[] = ["fails before", "answer lost"];

  /** The job over a copy of the stores with one fault, then again without; what is published is whole after each. */
  async function run(fault: Fault | null): Promise<string[]> {
    const dir = await mkdtemp(join(tmpdir(), "evidence-fault-"));
    await cp(base, dir, { recursive: true });
    const privateStore = await openDirectoryStore(join(dir, "private"));
    const publicStore = await openDirectoryStore(join(dir, "public"));
    try {
      const faults = new Faults(fault);
      const wrapped = {
        privateStore: faults.wrap(privateStore, "private"),
        publicStore: faults.wrap(publicStore, "public"),
      };
      const failed = await world.closeDaysOver(CLOSED, wrapped).then(
        () => false,
        () => true,
      );
      if (fault) expect(failed || fault.outcome === "answer lost").toBe(true);
      await proveRecord(publicStore, { trust: TRUST });
      await world.closeDaysOver(CLOSED, { privateStore, publicStore });
      const { leaves } = await proveRecord(publicStore, { trust: TRUST, atRest: true });
      expect(leaves.filter(({ kind }) => kind === "evidence")).toHaveLength(5);
      return faults.writes;
    } finally {
      await privateStore.close();
      await publicStore.close();
      await rm(dir, { recursive: true, force: true });
    }
  }

  beforeAll(async () => {
    world = await open();
    await world.ingest.append(...dayOne());
    await world.ingest.ingest.pass();
    base = world.ingest.dir;
  });

  test("leaves the old record or the new one, and the next run makes it whole", async () => {
    const writes = await run(null);
    for (const kind of [
      "public evidence/2026-11-10/",
      "private staging/",
      "private generation/",
      "public checkpoint",
    ]) {
      expect(
        writes.some((name) => name.startsWith(kind)),
        kind,
      ).toBe(true);
    }
    // One of each kind: who dies at the second of two files leaves the same behind as who dies at the first.
    const kinds = writes.map((name) => name.replaceAll(/[0-9a-f]{64}|\d+(?:\.[0-9a-f]{16})?/g, "N"));
    for (const write of writes.keys()) {
      if (kinds.indexOf(kinds[write]!) !== write) continue;
      for (const outcome of OUTCOMES) await run({ write, outcome, dies: true });
    }
  });

  test("two at once publish each day once", async () => {
    const stores = { privateStore: world.ingest.store, publicStore: world.publicStore };
    await Promise.all([
      world.closeDaysOver(CLOSED, stores),
      world.closeDaysOver(CLOSED, stores),
      world.closeDays(CLOSED),
    ]);
    await world.prove();
    expect((await filed(world)).filter(({ part }) => part === 1)).toHaveLength(2);
  });
});

test("a call of which nothing came is amended when its proof is shown again", async () => {
  const world = await open();
  const paid = intent("z", "2026-11-10T23:58:00.000Z");
  await world.ingest.append(
    paid,
    result("z", paid.eventId, "2026-11-10T23:58:30.000Z", NOTHING),
    settlement("z", paid.eventId, "2026-11-10T23:58:31.000Z"),
    followup("z", paid.eventId, "2026-11-11T00:01:00.000Z", {
      kind: "shown_again",
      shown_again: { ...CAME, watched: true },
    }),
  );
  await world.closeDays(CLOSED);
  const lines = await world.evidenceLines();
  expect(lines.find((line) => line.obs_id)).toMatchObject({ fault: "ours", settled: true, delivered: false });
  const amended = Object.fromEntries(lines.filter((line) => line.of).map((line) => [line.field, line.value]));
  expect(amended).toMatchObject({ fault: null, delivered: true, delivery: 1, shown_again: true });
});
