import { createHmac } from "node:crypto";
import { cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { packBundle } from "../../../infra/tree/bundle.ts";
import { openCheckpoint, signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { entriesPath, tilePath } from "../../../infra/tree/path.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import { audit } from "../../../pipelines/audit/audit.ts";
import { problemOf } from "../../../pipelines/audit/findings.ts";
import { ScheduleAudit } from "../../../pipelines/audit/schedules.ts";
import { headlineOf } from "../../../pipelines/published/caps.ts";
import { SourceDown } from "../../../pipelines/published/errors.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import { openSourceTreeHead } from "../../../pipelines/published/trust.ts";
import { commitmentHash, createCommitmentRecord } from "../../../pipelines/record/commitment.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import type { SampleLine } from "../../../pipelines/record/evidence.ts";
import { blockOf, blockStart, dayStart } from "../../../pipelines/record/time.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";
import { auditOf } from "../../helpers/published.ts";
import { capOf, correction, handshake, listing } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { LIES, type Lie, LyingSource } from "../mirror/lies.ts";

const day = (n: number): string => new Date(Date.UTC(2026, 9, 5 + n)).toISOString().slice(0, 10);
const onDay = (n: number, time: string): string => `${day(n)}T${time}.000Z`;
const salt = (n: number): string => Buffer.alloc(32, n + 1).toString("hex");

let world: ArchiveWorld;

/** What the order machine would append of an answer that its buyer does not publish. */
const committed = (name: string, answer: string, at: string) =>
  sealEnvelope(
    createCommitmentRecord(
      capOf(name),
      commitmentHash(Buffer.alloc(32, 5), Buffer.from(answer)),
      new Date(at),
      "test/1",
    ),
    PARTITIONS,
  );

/**
 * Four days of three endpoints with schedules, an index a day, a commitment, a correction, and evidence of all but the
 * last day.
 */
beforeAll(async () => {
  world = await ArchiveWorld.open();
  const names = ["a", "b", "c"];
  await world.ingest.append(...names.map((name) => listing(name, onDay(0, "00:00:00"), { seller_controlled: true })));
  for (let n = 0; n < 4; n++) {
    world.ingest.clock.set(onDay(n, "00:00:01"));
    const salt_hash = sha256hex(Buffer.from(salt(n), "hex"));
    const opens = n > 0 ? { opens: { day: day(n - 1), salt: salt(n - 1) } } : {};
    await world.publisher.publishSchedule({
      day: day(n),
      salt_hash,
      covered_root: "00".repeat(32),
      covered: 3,
      ...opens,
    });
    // What an ask brought stands in no plan: its minute is free.
    const probes = names.map((name) => handshake(name, onDay(n, "02:10:00"), { planned: "asked" }));
    await world.ingest.append(...probes);
    if (n === 1) await world.ingest.append(committed("a", "bought", onDay(n, "10:10:00")));
    if (n === 2) await world.ingest.append(correction("b", onDay(n, "21:00:00")));
    await world.grade(onDay(n, "23:59:59"));
    await world.publisher.buildIndex();
  }
  await world.closeDays(onDay(3, "06:30:00").replace(day(3), day(4)));
});
afterAll(() => world.close());

/** Every object that an audit of the sound record reads. */
async function needed(): Promise<string[]> {
  const inner = new DirectorySource(world.publicDir);
  const read = new Set<string>();
  const noting: Source = {
    name: "noting",
    get: async (key, maxBytes) => {
      const bytes = await inner.get(key, maxBytes);
      if (bytes) read.add(key);
      return bytes;
    },
    close: () => inner.close(),
  };
  expect((await auditOf(noting)).proven).toBe(true);
  return [...read].sort();
}

test("a sound record is proven, check by check, and what is open is said", async () => {
  const report = await auditOf(new DirectorySource(world.publicDir));
  const sums = Object.fromEntries(report.findings.map(({ check, result, checked }) => [check, [result, checked > 0]]));
  expect(report.proven).toBe(true);
  for (const check of [
    ...["entry bundles", "tiles", "leaves", "keys documents", "card signatures", "hints"],
    ...["indexes, rebuilt from the log", "index shards", "evidence files", "salts of days, opened"],
    ...["commitments", "cards, recomputed"],
  ]) {
    expect([check, sums[check]]).toEqual([check, ["ok", true]]);
  }
  const salts = report.findings.find(({ check }) => check === "salts of days, opened")!;
  expect([salts.open, salts.says]).toEqual([1, `the salt of ${day(3)} is not opened yet`]);
});

test("an audit reads every object but the unproven ones and edges of older trees", async () => {
  const files = (await readdir(world.publicDir, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(world.publicDir.length + 1))
    .filter((key) => !/^(?:live\/|\.~store|.*\.p\/)/.test(key));
  const read = await needed();
  expect(files.filter((key) => !read.includes(key))).toEqual([]);
});

/** What an audit of the folder says, and the names in it; a checkpoint that cannot be believed is a problem too. */
const namedIn = (dir: string): Promise<{ proven: boolean; says: string }> =>
  auditOf(new DirectorySource(dir)).then(
    ({ proven, findings }) => ({
      proven,
      says: findings.flatMap(({ problems }) => problems.map((one) => one.key)).join("\n"),
    }),
    // A checkpoint or the keys that it is believed by: there is nothing to audit under.
    (error: unknown) => ({ proven: false, says: problemOf(error)?.key ?? (error as Error).message }),
  );

test("one flipped bit in any object that is read: not proven, and the object is named", async () => {
  console.log(`flipped bits: seed ${SEED}`);
  const draw = drawn(SEED);
  const keys = await needed();
  expect(keys.length).toBeGreaterThan(15);
  const copy = join(world.ingest.dir, "flipped");
  await cp(world.publicDir, copy, { recursive: true });
  for (const key of keys) {
    const path = join(copy, key);
    const whole = await readFile(path);
    const flipped = Buffer.from(whole);
    const at = Math.floor(draw() * flipped.length);
    flipped[at] = flipped[at]! ^ (1 << Math.floor(draw() * 8));
    await writeFile(path, flipped);
    const { proven, says } = await namedIn(copy);
    expect([SEED, key, at, proven]).toEqual([SEED, key, at, false]);
    // Key documents and their hint are what a checkpoint is believed by where no key was given.
    expect([SEED, key, at, says.includes(key) || /^(?:hint\/keys|keys\/)/.test(key)]).toEqual([SEED, key, at, true]);
    await writeFile(path, whole);
  }
  await rm(copy, { recursive: true });
});

const KINDS: Record<string, RegExp> = {
  bundle: /^tile\/entries\//,
  tile: /^tile\/\d/,
  "index list": /^index\/\d/,
  shard: /^index\/shard\//,
  evidence: /^evidence\//,
  "key document": /^keys\//,
};
test.each(Object.keys(KINDS))(
  "a source that lies about one %s, in every way: never proven, and the object is named",
  async (kind) => {
    const key = (await needed()).find((one) => KINDS[kind]!.test(one))!;
    const honest = new DirectorySource(world.publicDir);
    const head = await openSourceTreeHead(honest, {}, () => undefined);
    for (const lie of Object.keys(LIES) as Lie[]) {
      const told = await audit({ source: new LyingSource(honest, key, lie, 0.5), head }).then(
        ({ proven, findings }) => ({ proven, says: JSON.stringify(findings.flatMap(({ problems }) => problems)) }),
        // A source that does not answer is no finding about the record.
        (error: Error) => ({ proven: error.name, says: error.message }),
      );
      expect([lie, told.proven]).toEqual([lie, lie === "stalled" || lie === "5xx" ? "SourceDown" : false]);
      expect([lie, told.says]).toEqual([lie, expect.stringContaining(key)]);
    }
  },
);

test("mix and match: the checkpoint of another history over these objects is not proven", async () => {
  const source = new DirectorySource(world.publicDir);
  const head = await openSourceTreeHead(source, {}, () => undefined);
  const report = await audit({ source, head: { ...head, root: Buffer.alloc(32, 5) } });
  expect([report.proven, report.findings.some(({ result }) => result === "not run")]).toEqual([false, true]);
});

// Audits once a bit.
test("no bit of a checkpoint can be flipped, the unneeded ones of its base64 neither", async () => {
  const note = await readFile(join(world.publicDir, "checkpoint"));
  for (let bit = 0; bit < note.length * 8; bit++) {
    const flipped = Buffer.from(note);
    flipped[bit >> 3] = flipped[bit >> 3]! ^ (1 << (bit & 7));
    expect(() => openCheckpoint(flipped, TRUST), `bit ${bit}`).toThrow();
  }
});

test("a bit that changes nothing of what a bundle or shard unpacks to is found too, and content mode passes it", async () => {
  const copy = join(world.ingest.dir, "inert");
  await cp(world.publicDir, copy, { recursive: true });
  const keys = await needed();
  const bundle = keys.find((key) => key.startsWith("tile/entries/"))!;
  const shard = keys.find((key) => key.startsWith("index/shard/"))!;
  for (const [key, unpack] of [
    [bundle, gunzipSync],
    [shard, decompress],
  ] as const) {
    const whole = await readFile(join(copy, key));
    const inert = inertFlip(whole, unpack);
    await writeFile(join(copy, key), inert);
    expect(await namedIn(copy)).toEqual({ proven: false, says: key });
    expect((await auditOf(new DirectorySource(copy), { packing: "content" })).proven).toBe(true);
    await writeFile(join(copy, key), whole);
  }
  await rm(copy, { recursive: true });
});

/** The first flipped bit after which the bytes still unpack to the same. */
function inertFlip(whole: Buffer, unpack: (bytes: Buffer) => Buffer): Buffer {
  const text = unpack(whole);
  for (let bit = 0; bit < whole.length * 8; bit++) {
    const flipped = Buffer.from(whole);
    flipped[bit >> 3] = flipped[bit >> 3]! ^ (1 << (bit & 7));
    try {
      if (unpack(flipped).equals(text)) return flipped;
    } catch {
      // This bit says something.
    }
  }
  throw new Error("every bit of these bytes says something");
}

describe("what a publisher with all keys could do", () => {
  test("another history of the same size, or a longer one that leaves something out, is a fork", async () => {
    const own = new DirectorySource(world.publicDir);
    const head = await openSourceTreeHead(own, {}, () => undefined);
    const keys = checkpointKeys(ORIGIN, SIGNERS);
    const note = signCheckpoint({ ...head, root: Buffer.alloc(32, 9) }, keys.log, keys.witness, new Date());
    const forged: Source = { name: "forged", get: async () => note, close: async () => undefined };
    const copies = [{ source: forged, head: openCheckpoint(note, TRUST) }];
    const { proven, forks } = await audit({ source: own, head, copies });
    expect(proven).toBe(false);
    expect(forks).toHaveLength(1);
    expect([forks[0]!.ours, forks[0]!.theirs]).toEqual([head.bytes.toString(), note.toString()]);
  });

  test("a live answer that shows another card, or is not signed, is found", async () => {
    const source = new DirectorySource(world.publicDir);
    const head = await openSourceTreeHead(source, {}, () => undefined);
    const fold = new PublishedFold();
    for (const leaf of await world.leaves()) fold.apply(leaf);
    const answered = (scorecard: string) =>
      signObject(SIGNERS.answers, { answered_at: onDay(4, "07:00:00"), computedAt: null, scorecard });
    const textOf = (path: string) => headlineOf(fold.caps.get(path.split("=")[1]!)!)!.text;
    const findingOf = async (ask: (path: string) => Promise<unknown>) => {
      const { findings } = await audit({ source, head, ask });
      return findings.find(({ check }) => check === "live answers")!;
    };
    expect(JWKS.keys.some(({ purpose }) => purpose === "answers")).toBe(true);
    expect(await findingOf(async (path) => answered(textOf(path)))).toMatchObject({ result: "ok", checked: 3 });
    expect(await findingOf(async () => answered("{}"))).toMatchObject({ result: "broken" });
    expect(await findingOf(async (path) => ({ ...answered(textOf(path)), band: "A" }))).toMatchObject({
      result: "broken",
    });
    expect(await findingOf(async () => null)).toMatchObject({ result: "broken" });
    // What it answers or refuses is the audited party's choice, and ends no audit.
    const stalls = async () => {
      throw new DOMException("The operation was aborted due to timeout", "TimeoutError");
    };
    expect(await findingOf(stalls)).toMatchObject({ result: "broken", checked: 3 });
    for (const answer of ['"text"', "7", "[]", '{"answered_at":{"toString":1,"valueOf":1}}'])
      expect(await findingOf(async () => JSON.parse(answer))).toMatchObject({ result: "broken", checked: 3 });
    expect(await findingOf(async () => JSON.parse("not json"))).toMatchObject({
      problems: [1, 2, 3].map(() => expect.objectContaining({ got: expect.stringContaining("not valid JSON") })),
    });
  });

  test("a fork is reported, whatever ends the rest of the audit", async () => {
    const own = new DirectorySource(world.publicDir);
    const head = await openSourceTreeHead(own, {}, () => undefined);
    const keys = checkpointKeys(ORIGIN, SIGNERS);
    const note = signCheckpoint({ ...head, root: Buffer.alloc(32, 9) }, keys.log, keys.witness, new Date());
    const copies = [{ source: own, head: openCheckpoint(note, TRUST) }];
    const silent: Source = {
      name: "silent",
      get: async (key) => {
        throw new SourceDown("silent", key, "503");
      },
      close: async () => undefined,
    };
    await expect(audit({ source: silent, head })).rejects.toThrow(SourceDown);
    const report = await audit({ source: silent, head, copies });
    expect([report.proven, report.forks.length]).toEqual([false, 1]);
    expect(report.findings.flatMap(({ problems }) => problems.map(({ got }) => got)).join()).toContain("503");
  });

  const leafText = (index: number, more: string) =>
    `{"at":"2026-10-05T00:00:00.000Z","capability_id":"c","index":${index},"kind":"delisting","seq":${index}${more}}`;
  const moment = "2026-99-99T00:00:00.000Z";
  const commitment = `{"at":"2026-10-05T00:00:00.000Z","capability_id":"${capOf("a")}","index":1,"kind":"commitment","moment":"${moment}","seq":0,"sha256":"${"ab".repeat(32)}"}`;
  test.each<[string, string, string, string]>([
    ["a lone surrogate", leafText(1, ',"x":"\\ud800"'), "leaves", "surrogate"],
    ["values nested too deep", leafText(1, `,"x":${"[".repeat(99)}${"]".repeat(99)}`), "leaves", "deeper than 64"],
    ["an hour that no day has", commitment, "commitments", moment],
  ])("a signed leaf with %s is a problem, and the audit goes on", async (_, entry, check, says) => {
    const entries = [leafText(0, ""), entry].map((text) => Buffer.from(text));
    const { live, tiles, bundles } = growTree(EMPTY_TREE, entries);
    const objects = new Map<string, Buffer>();
    for (const { level, n, width, bytes } of tiles) objects.set(tilePath(level, n, width), Buffer.from(bytes));
    for (const { n, entries: of } of bundles) objects.set(entriesPath(n, of.length), await packBundle(of));
    const keys = checkpointKeys(ORIGIN, SIGNERS);
    const head = { origin: ORIGIN, size: entries.length, root: live.tree.root() };
    const note = signCheckpoint(head, keys.log, keys.witness, new Date());
    const source: Source = {
      name: "memory",
      get: async (key) => objects.get(key) ?? null,
      close: async () => undefined,
    };
    const { findings } = await audit({ source, head: openCheckpoint(note, TRUST) });
    const broken = findings.find((finding) => finding.check === check)!;
    expect(broken.problems).toEqual([
      { key: "leaf 1", expected: expect.any(String), got: expect.stringContaining(says) },
    ]);
    expect(findings.map((finding) => finding.check)).toContain("cards, recomputed");
  });
});

describe("calls against the opened plan", () => {
  const cap = capOf("a");
  const bytes = createHmac("sha256", Buffer.from(salt(0), "hex"))
    .update(cap)
    .digest();
  const minute = ((bytes[8]! << 8) | bytes[9]!) % 360;
  const first = blockOf(dayStart(day(0)));
  const daily = bytes[0]! % 4;

  const scheduled = (opened: boolean): ScheduleAudit => {
    const fold = new PublishedFold();
    const salt_hash = sha256hex(Buffer.from(salt(0), "hex"));
    fold.schedules.set(day(0), { salt_hash, at: onDay(0, "00:00:01"), salt: opened ? salt(0) : null });
    return new ScheduleAudit(fold);
  };
  const line = (b: number, more: Record<string, unknown>): SampleLine =>
    ({
      obs_id: "rec_1",
      capability_id: cap,
      kind: 1,
      slot: `${first + b}/${minute}`,
      t: new Date(blockStart(first + b).getTime() + minute * 60_000).toISOString(),
      ...more,
    }) as unknown as SampleLine;
  const checkOf = (one: SampleLine, opened = true) => {
    const schedule = scheduled(opened);
    schedule.add(one);
    const { result: verdict, checked, open } = schedule.calls.finding;
    return [verdict, checked, open];
  };
  const blind = (b: number) => bytes[2 + b]! < 64;

  test.each<[string, SampleLine, unknown[]]>([
    ["a call of every block, by its own wallet", line(1, { blind: blind(1) }), ["ok", 1, 0]],
    ["the call of the day", line(daily, { blind: bytes[1]! < 64 }), ["ok", 1, 0]],
    ["a re-test by a blind wallet", line(2, { blind: true, retest: true }), ["ok", 1, 0]],
    ["a re-test by a wallet that is known", line(2, { blind: false, retest: true }), ["broken", 1, 0]],
    [
      "a wallet that the plan did not draw",
      line((daily + 1) % 4, { blind: !blind((daily + 1) % 4) }),
      ["broken", 1, 0],
    ],
    ["another minute", line(1, { blind: blind(1), slot: `${first + 1}/${(minute + 1) % 360}` }), ["broken", 1, 0]],
    ["a probe in its minute", line(3, { kind: 0, planned: "free" }), ["ok", 1, 0]],
    [
      "a probe in another minute",
      line(3, { kind: 0, planned: "free", slot: `${first}/${(minute + 7) % 360}` }),
      ["broken", 1, 0],
    ],
    ["a probe that somebody asked for", line(3, { kind: 0, planned: "asked", slot: `${first}/7` }), ["ok", 0, 0]],
  ])("%s", (_, one, want) => expect(checkOf(one)).toEqual(want));

  test("before the salt is opened nothing is said", () => {
    expect(checkOf(line(1, { blind: true }), false)).toEqual(["ok", 0, 1]);
  });

  test("a salt that does not hash to what was published before the day is found", () => {
    const fold = new PublishedFold();
    fold.schedules.set(day(0), { salt_hash: sha256hex("another"), at: onDay(0, "00:00:01"), salt: salt(0) });
    expect(new ScheduleAudit(fold).salts.finding.result).toBe("broken");
  });
});
