import { cp, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { compress, decompress } from "zstd-napi";
import { auditCommand, unprovenFailure } from "../../../commands/audit.ts";
import { EXIT, type ExitName, exitCodeOf } from "../../../commands/exit.ts";
import { packBundle } from "../../../infra/tree/bundle.ts";
import { openCheckpoint, signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { entriesPath, tilePath } from "../../../infra/tree/path.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import { PackedBytesCheck } from "../../../pipelines/audit/findings.ts";
import { auditTree } from "../../../pipelines/audit/tree.ts";
import { Oversized } from "../../../pipelines/published/errors.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, publishAll, publishMore, sourceDir } from "../mirror/testbed.ts";

/**
 * The failure table of `touchstone audit` (docs/audit.md, What a source can do): every fault of every kind of object that
 * a record has, the code that the command ends with, and the file that it names. test/pipelines/mirror has the mirror's.
 * What stands beside it: a flipped bit in every single file (audit.test.ts), the archive's files (archives.test.ts).
 */
const draw = drawn(SEED);
let record: PublicRecord;
/** Another history under the same keys, of the same size. */
let other: PublicRecord;
let work: string;
/** The record as it was before, its checkpoint kept. */
let before: string;
let note: string;
const keys: Record<string, string> = {};

beforeAll(async () => {
  console.log(`audit table: seed ${SEED}`);
  work = await mkdtemp(join(tmpdir(), "audit-table-"));
  record = await PublicRecord.open();
  other = await PublicRecord.open(record.keys);
  await publishAll(record, "a", 240);
  before = join(work, "before");
  await cp(sourceDir(record), before, { recursive: true });
  await publishMore(record, "b", 30);
  await publishAll(other, "z", 240);
  await publishMore(other, "y", 30);
  note = join(work, "kept-checkpoint");
  await writeFile(note, await readFile(join(sourceDir(record), "checkpoint")));
  const { fold } = record.committer;
  const list = JSON.parse(await readFile(join(sourceDir(record), fold.index!.key), "utf8")) as {
    shards: { sha256: string }[];
  };
  Object.assign(keys, {
    checkpoint: "checkpoint",
    bundle: "tile/entries/000",
    "bundle of the edge": `tile/entries/001.p/${fold.size - 256}`,
    tile: "tile/0/000",
    "tile of the edge": `tile/0/001.p/${fold.size - 256}`,
    "tile above": "tile/1/000.p/1",
    "index list": fold.index!.key,
    shard: `index/shard/${list.shards[0]!.sha256}.ndjson.zst`,
    "key document": fold.keys!.key,
    "hint of the index": "hint/index.json",
    "hint of the keys": "hint/keys.json",
  });
});
afterAll(async () => {
  await record.close();
  await other.close();
  await rm(work, { recursive: true, force: true });
});

/** How the command ends over this folder, and all that it says. */
async function audited(dir: string, more: Partial<Parameters<typeof auditCommand>[1]> = {}) {
  const said: string[] = [];
  const write = (text: unknown) => said.push(String(text)) > 0;
  const spies = [process.stdout, process.stderr].map((to) => vi.spyOn(to, "write").mockImplementation(write));
  const { log, witness } = keysOf(record);
  const options = { also: [], logKey: log, witnessKey: witness, forksIn: work, ...more };
  const error = await auditCommand(dir, options).then(
    () => null,
    (fault: Error) => fault,
  );
  for (const spy of spies) spy.mockRestore();
  return { code: error ? exitCodeOf(error) : EXIT.ok, says: `${said.join("")}\n${error?.message ?? ""}` };
}

const FAULTS: Record<string, (path: string, key: string) => Promise<unknown>> = {
  "a bit flipped": async (path) => {
    const whole = await readFile(path);
    const bit = Math.floor(draw() * whole.length * 8);
    whole[bit >> 3] = whole[bit >> 3]! ^ (1 << (bit & 7));
    await writeFile(path, whole);
  },
  "cut short": async (path) => truncate(path, (await readFile(path)).length - 1),
  // Sparse: it has the length, and takes no place.
  "endless data": (path) => truncate(path, 2 ** 33),
  missing: (path) => rm(path),
  "another history's": async (path, key) => {
    // Names of what is content-addressed differ, so another file of the same kind stands in for it.
    const dir = join(sourceDir(other), key.split("/").slice(0, -1).join("/"));
    const name = key.split("/").at(-1)!;
    const names = (await readdir(dir)).filter((one) => one.endsWith(extname(name)) && !one.startsWith(".")).sort();
    await cp(join(dir, names.includes(name) ? name : names.at(-1)!), path);
  },
};

/** The same bytes in both histories: keys documents under the same keys, and hints at places that both have. */
const SAME = ["key document", "hint of the index", "hint of the keys"];
const rows = () =>
  [
    ...["checkpoint", "bundle", "bundle of the edge", "tile", "tile of the edge", "tile above", "index list", "shard"],
    ...["key document", "hint of the index", "hint of the keys"],
  ].flatMap((object) =>
    Object.keys(FAULTS)
      .filter((fault) => !(fault === "another history's" && SAME.includes(object)))
      .map((fault) => [object, fault] as const),
  );

describe(`one file that is wrong (seed ${SEED})`, () => {
  test("the sound record is proven", async () => {
    const { code, says } = await audited(sourceDir(record));
    expect([code, says]).toEqual([EXIT.ok, expect.stringContaining("\nproven: ")]);
  });

  test.each(rows())("%s, %s", async (object, fault) => {
    const copy = await mkdtemp(join(work, "copy-"));
    await cp(sourceDir(record), copy, { recursive: true });
    const key = keys[object]!;
    await FAULTS[fault]!(join(copy, key), key);
    const { code, says } = await audited(copy);
    await rm(copy, { recursive: true });
    // Without a checkpoint there is no record to audit.
    const want: ExitName = object === "checkpoint" && fault === "missing" ? "failed" : "tampered";
    expect([SEED, object, fault, code]).toEqual([SEED, object, fault, EXIT[want]]);
    expect([SEED, object, fault, says]).toEqual([SEED, object, fault, expect.stringContaining(key)]);
  });
});

describe("a history that is not the one that was seen", () => {
  const at = (dir: () => string) => dir;
  test.each<[string, () => string, () => object, ExitName, RegExp]>([
    [
      "rollback: fewer leaves than the checkpoint kept",
      at(() => before),
      () => ({ since: note }),
      "rollback",
      /rollback: /,
    ],
    ["older, and nothing was kept: nobody can tell", at(() => before), () => ({}), "ok", /\nproven: /],
    ["freeze: cosigned too long ago", at(() => sourceDir(record)), () => ({ maxAge: 60 }), "stale", /stale: cosigned/],
    [
      "fork: another root than the checkpoint kept",
      at(() => sourceDir(other)),
      () => ({ since: note }),
      "fork",
      /fork: /,
    ],
    [
      "fork: another copy shows another history",
      at(() => sourceDir(record)),
      () => ({ also: [sourceDir(other)] }),
      "fork",
      /fork: /,
    ],
    [
      "the continuation of what was kept",
      at(() => sourceDir(record)),
      () => ({ since: join(before, "checkpoint"), also: [before] }),
      "ok",
      /other copies: 2\nproven: /,
    ],
    [
      "a kept checkpoint that is none",
      at(() => before),
      () => ({ since: join(before, keys["key document"]!.replace("1", "0")) }),
      "tampered",
      /checkpoint/,
    ],
    [
      "a kept checkpoint that is not there",
      at(() => before),
      () => ({ since: join(work, "no") }),
      "unreadable",
      /there is no such file/,
    ],
  ])("%s", async (_, dir, more, exit, says) => {
    const done = await audited(dir(), more());
    expect([done.code, done.says]).toEqual([EXIT[exit], expect.stringMatching(says)]);
    if (exit !== "fork") return;
    const file = /both signed notes are in (\S+fork-[0-9a-f]{16}\.txt)/.exec(done.says)![1]!;
    const notes = await Promise.all([record, other].map((one) => readFile(join(sourceDir(one), "checkpoint"), "utf8")));
    const text = await readFile(file, "utf8");
    for (const signed of notes) expect(text).toContain(signed);
  });
});

describe("a fork beside something that ends the audit", () => {
  const stale = { maxAge: 60 };
  test.each<[string, () => string, () => object]>([
    ["a rollback", () => before, () => ({ since: note })],
    ["a freeze", () => sourceDir(record), () => stale],
    ["both", () => before, () => ({ since: note, ...stale })],
  ])("%s: the fork is reported, with both notes", async (_, dir, more) => {
    const { code, says } = await audited(dir(), { ...more(), also: [sourceDir(other)] });
    expect([code, says]).toEqual([EXIT.fork, expect.stringMatching(/fork: /)]);
    const text = await readFile(/both signed notes are in (\S+fork-[0-9a-f]{16}\.txt)/.exec(says)![1]!, "utf8");
    for (const of of [dir(), sourceDir(other)]) expect(text).toContain(await readFile(join(of, "checkpoint"), "utf8"));
  });

  test("and beside a copy of the same history it is what it was", async () => {
    const rollback = await audited(before, { since: note, also: [sourceDir(record)] });
    expect([rollback.code, rollback.says]).toEqual([EXIT.rollback, expect.stringMatching(/rollback: /)]);
    const frozen = await audited(sourceDir(record), { ...stale, also: [before] });
    expect([frozen.code, frozen.says]).toEqual([EXIT.stale, expect.stringMatching(/stale: cosigned/)]);
    expect((await audited(sourceDir(record), { maxAge: 0, also: [before] })).code).toBe(EXIT.ok);
  });
});

describe(`segments (seed ${SEED})`, () => {
  const SIZE = 65_537;
  const KEY = "segment/0.ndjson.zst";
  const objects = new Map<string, Buffer>();
  let head: { size: number; root: Buffer };

  beforeAll(async () => {
    const leaf = (i: number) =>
      Buffer.from(`{"at":"${NOW}","capability_id":"c","index":${i},"kind":"delisting","seq":${i}}`);
    const entries = Array.from({ length: SIZE }, (_, i) => leaf(i));
    const { live, tiles, bundles } = growTree(EMPTY_TREE, entries);
    head = { size: SIZE, root: live.tree.root() };
    for (const { level, n, width, bytes } of tiles) objects.set(tilePath(level, n, width), Buffer.from(bytes));
    for (const { n, entries: of } of bundles) objects.set(entriesPath(n, of.length), await packBundle(of));
    objects.set(
      KEY,
      compress(Buffer.concat(entries.slice(0, -1).map((one) => Buffer.concat([one, Buffer.from("\n")])))),
    );
  });

  /** Findings of the tree alone: what lies above it does not look at segments. */
  const findings = (segment: (sound: Buffer) => Uint8Array | null) => {
    const source: Source = {
      name: "memory",
      get: async (key) => (key === KEY ? segment(objects.get(KEY)!) : (objects.get(key) ?? null)),
      close: async () => undefined,
    };
    return auditTree(source, head, new PackedBytesCheck("content"), () => undefined);
  };
  const lines = (sound: Buffer): string => decompress(sound).toString();

  test("a sound one is proven", async () => {
    expect((await findings((sound) => sound)).findings.map(({ result, checked }) => [result, checked > 0])).toEqual(
      Array(3).fill(["ok", true]),
    );
  });

  test.each<[string, (sound: Buffer) => Uint8Array | null]>([
    ["a leaf changed", (sound) => compress(Buffer.from(lines(sound).replace('"seq":7}', '"seq":8}')))],
    ["cut short", (sound) => sound.subarray(0, -1)],
    ["endless once unpacked", (sound) => compress(Buffer.from(lines(sound).repeat(3)))],
    [
      "endless",
      () => {
        throw new Oversized(KEY, 1);
      },
    ],
    ["another history's", (sound) => compress(Buffer.from(lines(sound).replaceAll('"c"', '"d"')))],
    ["missing", () => null],
  ])("%s", async (_, segment) => {
    const { findings: found } = await findings(segment);
    const broken = found.filter(({ result }) => result === "broken");
    expect(broken.map(({ check, problems }) => [check, problems.map(({ key }) => key)])).toEqual([["segments", [KEY]]]);
    expect(exitCodeOf(unprovenFailure(broken))).toBe(EXIT.tampered);
  });
});

describe("a copy that is none of this log, or an old one", () => {
  const untold = { logKey: undefined, witnessKey: undefined };
  const elsewhere = "elsewhere.example";
  /** The record's folder under the checkpoint of another log that has the same keys. */
  const underOrigin = async (): Promise<string> => {
    const copy = await mkdtemp(join(work, "origin-"));
    await cp(sourceDir(record), copy, { recursive: true });
    const { size, root } = openCheckpoint(await readFile(join(copy, "checkpoint")), record.trust);
    const { log, witness } = checkpointKeys(elsewhere, record.keys);
    await writeFile(
      join(copy, "checkpoint"),
      signCheckpoint({ origin: elsewhere, size, root }, log, witness, new Date()),
    );
    return copy;
  };

  test("a stranger's log under this log's name is no fork of it", async () => {
    const stranger = await PublicRecord.open();
    try {
      await publishAll(stranger, "s", 3);
      for (const options of [untold, {}]) {
        const { code, says } = await audited(sourceDir(record), { ...options, also: [sourceDir(stranger)] });
        expect([code, says]).toEqual([EXIT.tampered, expect.stringContaining(`checkpoint of ${sourceDir(stranger)}`)]);
      }
    } finally {
      await stranger.close();
    }
  });

  test.each(["also", "since"])("another log under the same keys is refused by --%s", async (option) => {
    const copy = await underOrigin();
    const more = option === "also" ? { also: [copy] } : { since: join(copy, "checkpoint") };
    const { code, says } = await audited(sourceDir(record), { ...untold, ...more });
    expect([code, says]).toEqual([EXIT.usage, expect.stringContaining(`shows the log ${elsewhere}`)]);
  });

  test("an honest copy is believed under the keys that the audited record shows", async () => {
    const { code, says } = await audited(sourceDir(record), { ...untold, also: [before] });
    expect([code, says]).toEqual([EXIT.ok, expect.stringMatching(/other copies: 1\nproven: /)]);
    expect(says.match(/believing the keys/g)).toHaveLength(1);
  });
});

test("a root that the log's key signed and no tree has is found, keys and all", async () => {
  const copy = await mkdtemp(join(work, "root-"));
  await cp(sourceDir(record), copy, { recursive: true });
  const signed = record.note({ size: record.committer.fold.size, root: Buffer.alloc(32, 3) });
  await writeFile(join(copy, "checkpoint"), signed);
  const { code, says } = await audited(copy);
  expect([code, says]).toEqual([EXIT.tampered, expect.stringContaining("checkpoint")]);
});

test("a cosignature of the future is believed by no way of asking, and freshens nothing", async () => {
  const copy = await mkdtemp(join(work, "future-"));
  await cp(sourceDir(record), copy, { recursive: true });
  const head = openCheckpoint(await readFile(join(copy, "checkpoint")), record.trust);
  const inMs = (ms: number) => record.note(head, new Date(Date.now() + ms).toISOString());
  const file = join(copy, "checkpoint");
  const ways: [string, string, object][] = [
    ["the source", copy, {}],
    ["the source, of whatever age", copy, { maxAge: 0 }],
    ["another copy", sourceDir(record), { also: [copy] }],
    ["the checkpoint kept", sourceDir(record), { since: file }],
    ["one endpoint", copy, { endpoint: "all" }],
    ["a commitment", copy, { open: file, salt: "00".repeat(32) }],
  ];
  await writeFile(file, inMs(3_600_000));
  for (const [way, dir, more] of ways) {
    const { code, says } = await audited(dir, more);
    expect([way, code, says]).toEqual([way, EXIT.tampered, expect.stringMatching(/checkpoint.* has not reached yet/)]);
  }
  // A clock that is a little behind is no fault of the log's.
  await writeFile(file, inMs(60_000));
  expect((await audited(copy)).code).toBe(EXIT.ok);
});
