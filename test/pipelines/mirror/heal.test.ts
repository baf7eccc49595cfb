import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { compress } from "zstd-napi";
import { openMirrorFolder } from "../../../commands/mirror.ts";
import { sha256hex } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { type AuditReport, audit } from "../../../pipelines/audit/audit.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import type { MirrorOptions } from "../../../pipelines/mirror/run.ts";
import { MirrorBusy, Rollback, SourceDown } from "../../../pipelines/published/errors.ts";
import { callKey, kindOfKey } from "../../../pipelines/published/objects.ts";
import { findRecordFolder } from "../../../pipelines/published/open-source.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import { openSourceTreeHead } from "../../../pipelines/published/trust.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { handshake, listing, published } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { keysOf, Mirror, publishAll, sourceDir } from "./testbed.ts";

/** Every kind of object damaged and deleted under a mirror that trusts its tree: found, got round, and mended. */

const REQUEST = Buffer.from("GET https://a.example/x\n");
const ANSWER = Buffer.from("an answer that somebody bought");
const KEYS = { log: formatVkey(TRUST.log, ED25519), witness: formatVkey(TRUST.witness, COSIGNATURE) };
const NAMES = ["a", "b", "c", "d"];
const on = (day: number, time: string): string => `2026-11-${day}T${time}.000Z`;

let world: ArchiveWorld;
let dir: string;
let size = 0;
/** What a test damaged, so that one that fails leaves the next ones a sound copy. */
let damaged: { path: string; whole: Buffer } | null = null;
afterEach(async () => {
  if (damaged) await writeFile(damaged.path, damaged.whole);
});
beforeAll(async () => {
  world = await ArchiveWorld.open();
  // More leaves than one bundle has, so that a broken one leaves others whole.
  const many = Array.from({ length: 300 }, (_, n) => listing(`quiet${n}`, on(10, "00:00:00")));
  await world.ingest.append(...NAMES.map((name) => listing(name, on(10, "00:00:00"))), ...many);
  for (const bytes of [REQUEST, ANSWER]) await world.publicStore.create(callKey(sha256hex(bytes)), compress(bytes));
  const call = {
    ...{ request_sha256: sha256hex(REQUEST), request_bytes: REQUEST.length },
    ...{ response_sha256: sha256hex(ANSWER), response_bytes: ANSWER.length },
  };
  for (const day of [10, 11]) {
    await world.ingest.append(...NAMES.map((name) => handshake(name, on(day, "03:00:00"))));
    if (day === 10) await world.ingest.append(published("a", on(day, "05:00:00"), 1, call));
    await world.grade(on(day, "23:00:00"));
    await world.publisher.buildIndex();
    await world.closeDays(on(day + 1, "06:30:00"));
  }
  await world.archive("2027-03-01T00:00:00.000Z");
  await world.publisher.buildIndex();
  dir = join(world.ingest.dir, "copy");
  size = (await run()).tree_size;
});
afterAll(() => world.close());

async function run(more: Partial<MirrorOptions> = {}, source: Source = new DirectorySource(world.publicDir)) {
  const { publicStore, stateStore, partsDir, close } = await openMirrorFolder(dir);
  const clock = new FixedClock("2027-03-01T00:00:01.000Z");
  try {
    return await mirrorOnce({ ...{ source, publicStore, stateStore, partsDir, clock, maxAgeSeconds: 0 }, ...more });
  } finally {
    await close();
  }
}

async function audited(): Promise<AuditReport & { cards: { checked: number; not_run: number } }> {
  const source = new DirectorySource(join(dir, "public"));
  const report = await audit({ source, head: await openSourceTreeHead(source, KEYS, () => undefined) });
  return { ...report, cards: report.findings.find(({ check }) => check === "cards, recomputed")! };
}

const trusted = () => readFile(join(dir, "state", "trusted.json"), "utf8");
const namesIn = ({ findings }: AuditReport) => findings.flatMap(({ problems }) => problems.map(({ key }) => key));

const objects = (): Promise<string[]> => filesIn(dir);

/** Keys of the objects that a mirror's folder exposes. */
async function filesIn(mirrorDir: string): Promise<string[]> {
  const all = await readdir(join(mirrorDir, "public"), { recursive: true, withFileTypes: true });
  const files = all.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const keys = files.map((path) => path.slice(join(mirrorDir, "public").length + 1));
  return keys.filter((key) => !key.startsWith(".~store"));
}

/** Objects of each kind that an audit of this tree reads. */
const KINDS: [string, string][] = [
  ...["tile", "entries", "archiveFile", "archiveManifest", "indexList", "indexShard"],
  ...["evidence", "keys", "call"],
].flatMap((kind): [string, string][] => [
  [kind, "flipped"],
  [kind, "deleted"],
]);

describe("under a tree that is trusted", () => {
  test("the mirror has every kind of object, and all of it is proven", async () => {
    const kinds = new Set((await objects()).map((key) => kindOfKey(key)));
    for (const [kind] of KINDS) expect([kind, kinds.has(kind as never)]).toEqual([kind, true]);
    const report = await audited();
    expect([report.proven, namesIn(report)]).toEqual([true, []]);
    expect(report.findings.find(({ check }) => check === "bought calls, published")).toMatchObject({ checked: 2 });
    expect(size).toBeGreaterThan(256);
  });

  test.each(KINDS)("one %s, %s: named, every other card recomputed, and mended", async (kind, how) => {
    const before = await trusted();
    const sound = await audited();
    const of = (await objects()).filter((key) => kindOfKey(key) === kind);
    const key = of.sort().at(how === "flipped" ? -1 : 0)!;
    const path = join(dir, "public", key);
    const whole = await readFile(path);
    damaged = { path, whole };
    const flipped = Buffer.from(whole);
    flipped[whole.length >> 1]! ^= 0x10;
    if (how === "flipped") await writeFile(path, flipped);
    else await rm(path);

    const broken = await audited();
    expect([key, broken.proven, namesIn(broken)]).toEqual([key, false, expect.arrayContaining([key])]);
    // Whatever else is told of stands on that object; nothing sound is called broken.
    expect(namesIn(broken).filter((one) => one !== key)).toEqual([]);
    const unread = broken.findings.find(({ check }) => check === "leaves")!.not_run;
    // Cards that stand in the hole itself are leaves that were not read; those behind it are run.
    const [ran, total] = [broken.cards.checked + broken.cards.not_run, sound.cards.checked + sound.cards.not_run];
    if (kind === "entries") expect(unread).toBe(how === "flipped" ? size % 256 : 256);
    if (kind === "entries") expect([ran < total, broken.cards.checked > 0]).toEqual([true, how === "deleted"]);
    else expect([unread, ran]).toEqual([0, total]);
    if (kind === "evidence") expect([broken.cards.not_run > 0, broken.cards.checked > 0]).toEqual([true, true]);
    else if (kind !== "entries") expect(broken.cards).toMatchObject({ result: "ok", checked: sound.cards.checked });

    const { result, mended } = await run({ verify: true });
    expect([result, mended]).toEqual(["verified", [{ key, was: how === "flipped" ? "damaged" : "gone" }]]);
    expect(await audited()).toMatchObject({ proven: true });
    expect(await trusted()).toBe(before);
    expect((await run({ verify: true })).mended).toEqual([]);
  });

  test("what the source does not have either is not shown, and is asked for again", async () => {
    const key = callKey(sha256hex(ANSWER));
    const path = join(dir, "public", key);
    await writeFile(path, compress(Buffer.from("another answer")));
    const honest = new DirectorySource(world.publicDir);
    const lacking: Source = {
      ...honest,
      name: "lacking",
      close: honest.close,
      get: async (one, max) => (one === key ? null : honest.get(one, max)),
    };
    const { missing } = await run({ verify: true }, lacking);
    expect(missing).toMatchObject([{ key, got: "none", tries: 1 }]);
    expect(await objects()).not.toContain(key);
    expect(await run({})).toMatchObject({ result: "idle", missing: [] });
    expect(await objects()).toContain(key);
  });

  test("of a source that answers for no object, sound objects stay; only damaged and absent ones are missing", async () => {
    const before = (await objects()).sort();
    const ofKind = (kind: string) => before.filter((key) => kindOfKey(key) === kind);
    // The leaves of the evidence stand before those of the archive, so a run asks for it first.
    const [absent, files] = [ofKind("evidence"), ofKind("archiveFile")];
    const flipped = files[0]!;
    const intact = before.filter((key) => !absent.includes(key) && key !== flipped);
    expect([absent.length > 5, files.length > 1]).toEqual([true, true]);
    for (const key of absent) await rm(join(dir, "public", key));
    const path = join(dir, "public", flipped);
    const whole = await readFile(path);
    damaged = { path, whole };
    await writeFile(path, whole.subarray(1));

    const asked: string[] = [];
    const honest = new DirectorySource(world.publicDir);
    const silent: Source = {
      name: "silent",
      close: honest.close,
      get: async (key, max) => {
        if (![...absent, ...files].includes(key)) return honest.get(key, max);
        asked.push(key);
        throw new SourceDown("silent", key, "it answered 503 (5 tries)");
      },
    };
    const { missing } = await run({ verify: true, width: 1 }, silent);
    expect((await objects()).sort()).toEqual(intact);
    expect(missing.map(({ key }) => key).sort()).toEqual([...absent, flipped].sort());
    // After five in a row the source is left alone.
    expect(asked).toHaveLength(5);
    expect(await run({})).toMatchObject({ result: "idle", missing: [] });
    expect((await objects()).sort()).toEqual(before);
  });

  test("a source that went back is refused by a verifying run too", async () => {
    const before = await trusted();
    const older = await readdir(world.publicDir).then(async () => {
      const saved = JSON.parse(before) as { head: { size: number; note: string } };
      await writeFile(
        join(dir, "state", "trusted.json"),
        JSON.stringify({ ...saved, head: { ...saved.head, size: saved.head.size + 5 } }),
      );
    });
    expect(older).toBeUndefined();
    await expect(run({ verify: true })).rejects.toThrow(Rollback);
    await writeFile(join(dir, "state", "trusted.json"), before);
  });
});

test("a leaf that names the key of something else deletes nothing", async () => {
  const record = await PublicRecord.open();
  const own = await Mirror.open();
  try {
    const from = new DirectorySource(sourceDir(record));
    await publishAll(record, "a", 5);
    const keys = keysOf(record);
    await own.run(from, { keys });
    const before = (await filesIn(own.dir)).filter((key) => !key.includes(".p/"));
    const list = record.committer.fold.index!.key;
    const sha256 = "0".repeat(64);
    for (const key of ["keys/0.json", list, "hint/keys.json"])
      await record.publish([{ kind: "index", key, sha256, bytes: 10, tree_size: 1 }]);
    expect((await own.run(from, { keys })).missing.map(({ key }) => key)).toContain(list);
    await own.run(from, { keys, verify: true });
    expect(await filesIn(own.dir)).toEqual(expect.arrayContaining(before));
  } finally {
    await own.close();
    await record.close();
  }
});

describe("the folder", () => {
  test("a second keeper is refused at once, and the first goes on", async () => {
    const first = await openMirrorFolder(dir);
    await expect(openMirrorFolder(join(dir, "public"))).rejects.toThrow(MirrorBusy);
    await first.close();
    await (await openMirrorFolder(dir)).close();
  });

  test("a first copy that proves nothing leaves no folder; one that was cut off keeps what it has", async () => {
    const kept = dir;
    dir = join(world.ingest.dir, "first");
    const nothing: Source = { name: "nothing", get: async () => null, close: async () => undefined };
    await expect(run({}, nothing)).rejects.toThrow("missing: checkpoint");
    expect(await findRecordFolder(dir)).toBeNull();
    // Cut off in the middle: the second time only what did not come is asked for.
    const honest = new DirectorySource(world.publicDir);
    let left = 1;
    const cut: Source = {
      name: "cut",
      close: async () => undefined,
      get: async (key, max) => {
        if (key.startsWith("evidence/") && left-- <= 0) throw new Error("killed");
        return honest.get(key, max);
      },
    };
    await expect(run({}, cut)).rejects.toThrow("killed");
    const asked: string[] = [];
    const watched: Source = { ...cut, get: (key, max) => honest.get(asked[asked.push(key) - 1]!, max) };
    const done = await run({}, watched);
    expect(asked.filter((key) => key.startsWith("tile/entries/"))).toEqual([]);
    expect(asked.filter((key) => key.startsWith("evidence/")).length).toBeLessThan(done.adopted);
    expect(await findRecordFolder(dir)).toEqual({ publicDir: join(dir, "public"), stateDir: join(dir, "state") });
    dir = kept;
  });
});
