import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { cosignatureLine } from "../../../infra/tree/cosignature.ts";
import { EMPTY_ROOT } from "../../../infra/tree/hash.ts";
import { COSIGNATURE, ED25519, formatVkey, parseNote, signatureLine } from "../../../infra/tree/note.ts";
import { tilePath } from "../../../infra/tree/path.ts";
import { readPolicy } from "../../../infra/tree/policy.ts";
import { headOfNote, proveEquivocation, readEquivocation } from "../../../pipelines/published/equivocation.ts";
import { SourceDown } from "../../../pipelines/published/errors.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { noteSigner } from "../../helpers/witnessed.ts";
import { WatchedSource } from "../mirror/testbed.ts";
import { copyOf, fill, folder, forkedPair, keys, MonitorBed } from "./testbed.ts";

/** A table of disasters: what a monitor says of a log whose addresses are down, behind, broken, foreign or forked. */
const opened: { close(): Promise<unknown> }[] = [];
const keep = <T extends { close(): Promise<unknown> }>(one: T): T => {
  opened.push(one);
  return one;
};
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const bed = async () => keep(await MonitorBed.open());
const pair = async (shared: number) => (await forkedPair(shared)).map(keep) as [PublicRecord, PublicRecord];
const codes = ({ faults }: { faults: { code: string }[] }) => faults.map(({ code }) => code);
const down = (name: string): Source => ({
  name,
  get: async (key) => {
    throw new SourceDown(name, key, "connection refused (2 tries)");
  },
  close: async () => undefined,
});

/** Proves the file of a fork as anybody does, with the log's key alone. */
async function provenFile(of: MonitorBed, file: string | null | undefined, record: PublicRecord) {
  const bytes = (await of.files.get(file!))!.bytes;
  return proveEquivocation(readEquivocation(JSON.parse(Buffer.from(bytes).toString())), [record.trust.log]);
}

test("a log that grows is proven, round by round, and every checkpoint is kept", async () => {
  const record = keep(await PublicRecord.open());
  const monitor = await bed();
  const sources = [folder(record)];
  for (const [i, count] of [3, 300, 1, 700].entries()) {
    await fill(record, `g${i}x`, count);
    const round = await monitor.round({ sources, keys: keys(record) });
    expect([codes(round), round.head?.size, round.newCheckpoints]).toEqual([[], record.committer.fold.size, 1]);
  }
  expect([monitor.state.count("proven"), monitor.state.count("unproven")]).toEqual([4, 0]);
  expect((await monitor.round({ sources, keys: keys(record) })).newCheckpoints).toBe(0);
});

test.each([
  ["above", 300, 0, 40, 90],
  ["below", 300, 0, 90, 40],
  ["from the first leaf", 0, 0, 5, 9],
  ["at a power of two", 256, 0, 256, 300],
  ["over a full tile", 100, 0, 412, 3],
] as const)("two histories of other sizes, %s: a fork that anybody proves", async (_, shared, __, one, other) => {
  const [first, second] = await pair(shared);
  await fill(first, "one", one);
  await fill(second, "other", other);
  const monitor = await bed();
  const alone = await monitor.round({ sources: [folder(first)], keys: keys(first) });
  expect([codes(alone), alone.head?.size]).toEqual([[], shared + one]);
  const round = await monitor.round({ sources: [folder(first), folder(second)], keys: keys(first) });
  expect([codes(round), round.forks.length]).toEqual([["fork"], 1]);
  const { smaller, larger } = await provenFile(monitor, round.forks[0]?.file, first);
  expect([smaller.size, larger.size]).toEqual([shared + one, shared + other].sort((a, b) => a - b));
  // The proven side stays, the fork is not found twice, and the state remembers it.
  const again = await monitor.round({ sources: [folder(first)], keys: keys(first) });
  expect([codes(again), again.forks, again.head]).toEqual([["fork"], [], alone.head]);
  expect(monitor.told.filter(({ type }) => type === "monitor.equivocation").length).toBe(1);
});

test("a line of a key that the log names only later does not spoil the proof", async () => {
  const [first, second] = await pair(10);
  await fill(second, "other", 5);
  const next = noteSigner(first.trust.log.name, 33);
  const own = Buffer.from((await second.store.get("checkpoint"))!.bytes);
  const alone = new WatchedSource(join(second.dir, "nothing"));
  alone.shown.set("checkpoint", Buffer.concat([own, Buffer.from(signatureLine(next, ED25519, Buffer.alloc(64, 1)))]));
  const monitor = await bed();
  const before = await monitor.round({ sources: [folder(first), alone], keys: keys(first) });
  expect(codes(before)).toEqual(["unproven"]);
  const { trusted } = monitor.state;
  monitor.state.saveTrusted({ ...trusted!, ever: [...trusted!.ever, formatVkey(next, ED25519)] });
  await fill(first, "one", 9);
  const round = await monitor.round({ sources: [folder(first)], keys: keys(first) });
  expect(codes(round)).toEqual(["fork"]);
  expect((await provenFile(monitor, round.forks[0]?.file, first)).smaller.size).toBe(15);
});

test("two roots of one size, of two sources at the first start", async () => {
  const [first, second] = await pair(10);
  await fill(first, "one", 20);
  await fill(second, "other", 20);
  const monitor = await bed();
  const round = await monitor.round({ sources: [folder(first), folder(second)], keys: keys(first) });
  expect(codes(round)).toEqual(["fork"]);
  const { smaller, larger } = await provenFile(monitor, round.forks[0]?.file, first);
  expect([smaller.size, larger.size, smaller.root.equals(larger.root)]).toEqual([30, 30, false]);
});

test("a fork whose tiles are withheld is unproven, and proven once the honest side has outgrown it", async () => {
  const [first, second] = await pair(10);
  await fill(first, "one", 5);
  await fill(second, "other", 20);
  const liar = new WatchedSource(join(second.dir, "public"));
  liar.onGet = (key) => {
    if (key.startsWith("tile/")) throw new SourceDown("watched", key, "it answered 503");
  };
  const monitor = await bed();
  const sources = [folder(first), liar];
  const round = await monitor.round({ sources, keys: keys(first) });
  expect([codes(round), round.head?.size, round.forks]).toEqual([["unproven"], 15, []]);
  expect(round.faults[0]?.message).toMatch(/1 signed checkpoints are not proven; one of 30 leaves, from watched: /);
  expect(monitor.told).toEqual([]);
  await fill(first, "more", 100);
  const later = await monitor.round({ sources, keys: keys(first) });
  expect([codes(later), later.forks.length]).toEqual([["fork"], 1]);
  expect((await provenFile(monitor, later.forks[0]?.file, first)).smaller.size).toBe(30);
});

test("tiles of a server that is busy are no finding: 1, proven when it answers; what its bytes showed stays 25", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "one", 20);
  const source = new WatchedSource(join(record.dir, "public"));
  const busy = (key: string) => {
    if (key.startsWith("tile/")) throw new SourceDown("watched", key, "it answered 503");
  };
  source.onGet = busy;
  const monitor = await bed();
  const round = () => monitor.round({ sources: [source], keys: keys(record) });
  const first = await round();
  expect([codes(first), first.head, first.faults[0]?.retriable]).toEqual([["failed"], null, true]);
  expect(first.faults[0]?.message).toMatch(/not proven; one of 20 leaves, from watched: no source answers; watched: /);
  source.onGet = () => undefined;
  const second = await round();
  expect([codes(second), second.head?.size]).toEqual([[], 20]);
  await fill(record, "two", 5);
  source.shown.set(tilePath(0, 0, 25), Buffer.alloc(40));
  expect(codes(await round())).toEqual(["unproven"]);
  source.onGet = busy;
  expect(codes(await round())).toEqual(["unproven"]);
  const offline = await monitor.round({ sources: [down("watched")], keys: keys(record) });
  expect(codes(offline)).toEqual(["unproven", "failed"]);
});

/** What a source can do that proves nothing about the log. `tile` is the right edge of the newer tree. */
const BROKEN: [name: string, lie: (source: WatchedSource, tile: string, whole: Buffer) => void, code: string][] = [
  ["a truncated tile", (source, tile, whole) => source.shown.set(tile, whole.subarray(0, 40)), "unproven"],
  ["a longer tile", (source, tile, whole) => source.shown.set(tile, Buffer.concat([whole, whole])), "unproven"],
  ["no tile", (source, tile) => source.shown.set(tile, null), "unproven"],
  [
    "a wrong hash",
    (source, tile, whole) => source.shown.set(tile, Buffer.concat([Buffer.alloc(32, 7), whole.subarray(32)])),
    "unproven",
  ],
  [
    "the tile of another history",
    (source, tile, whole) => source.shown.set(tile, Buffer.from(whole).reverse()),
    "unproven",
  ],
  ["no checkpoint", (source) => source.shown.set("checkpoint", null), "failed"],
  ["a page of HTML", (source) => source.shown.set("checkpoint", Buffer.from("<html>")), "tampered"],
];
test.each(BROKEN)("%s is no fork", async (_, lie, code) => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 300);
  const source = new WatchedSource(join(record.dir, "public"));
  const monitor = await bed();
  await monitor.round({ sources: [source], keys: keys(record) });
  await fill(record, "b", 30);
  const tile = tilePath(0, 1, 330 - 256);
  lie(source, tile, Buffer.from((await record.store.get(tile))!.bytes));
  const round = await monitor.round({ sources: [source], keys: keys(record) });
  expect([codes(round), round.head?.size, round.forks]).toEqual([[code], 300, []]);
  source.shown.clear();
  const mended = await monitor.round({ sources: [source], keys: keys(record) });
  expect([codes(mended), mended.head?.size]).toEqual([[], 330]);
});

test("an inner tile that is wrong proves nothing either, also where the sizes lie far apart", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 100);
  const source = new WatchedSource(join(record.dir, "public"));
  const monitor = await bed();
  await monitor.round({ sources: [source], keys: keys(record) });
  await fill(record, "b", 500);
  source.shown.set(tilePath(0, 0), Buffer.alloc(8192, 1));
  const round = await monitor.round({ sources: [source], keys: keys(record) });
  expect([codes(round), round.head?.size, round.forks]).toEqual([["unproven"], 100, []]);
});

test("one source down of two is a warning, all of them are a fault, and what was proven stays", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 10);
  const monitor = await bed();
  const one = await monitor.round({ sources: [down("cdn"), folder(record)], keys: keys(record) });
  expect([codes(one), one.warnings.map(({ message }) => message), one.head?.size]).toEqual([
    [],
    ["cdn: cdn does not give checkpoint: connection refused (2 tries)"],
    10,
  ]);
  const all = await monitor.round({ sources: [down("cdn")], keys: keys(record) });
  expect([codes(all), all.head?.size]).toEqual([["failed"], 10]);
});

test("a source that is behind is no fault beside one that is not; alone it is a rollback", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 100);
  const old = await copyOf(record);
  await fill(record, "b", 300);
  const monitor = await bed();
  const both = await monitor.round({ sources: [old.source, folder(record)], keys: keys(record) });
  expect([codes(both), both.head?.size, monitor.state.count("proven")]).toEqual([[], 400, 2]);
  expect(codes(await monitor.round({ sources: [old.source], keys: keys(record) }))).toEqual(["rollback"]);
});

test("an older checkpoint that nobody showed before is proven in the newer tree", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 100);
  const old = await copyOf(record);
  await fill(record, "b", 300);
  const monitor = await bed();
  await monitor.round({ sources: [folder(record)], keys: keys(record) });
  const round = await monitor.round({ sources: [folder(record), old.source], keys: keys(record) });
  expect([codes(round), round.newCheckpoints, monitor.state.count("proven")]).toEqual([[], 1, 2]);
});

test("another log's checkpoint, and one of this name under another key, are dropped", async () => {
  const record = keep(await PublicRecord.open());
  const stranger = keep(await PublicRecord.open());
  for (const one of [record, stranger]) await fill(one, "a", 10);
  const monitor = await bed();
  const round = await monitor.round({ sources: [folder(record), folder(stranger)], keys: keys(record) });
  expect([codes(round), round.newCheckpoints, round.head?.size, round.forks]).toEqual([["tampered"], 1, 10, []]);
});

test("keys are pinned at the first start, and another key later is refused", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 10);
  const stranger = keep(await PublicRecord.open());
  await fill(stranger, "a", 20);
  const monitor = await bed();
  expect(codes(await monitor.round({ sources: [folder(record)], keys: keys(record) }))).toEqual([]);
  const round = await monitor.round({ sources: [folder(stranger)] });
  expect([codes(round), round.head?.size]).toEqual([["tampered"], 10]);
});

test("too old is stale; a tree without leaves has one root", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 10);
  const monitor = await bed();
  monitor.clock.set("2026-11-25T12:00:00.000Z");
  expect(codes(await monitor.round({ sources: [folder(record)], keys: keys(record) }))).toEqual(["stale"]);
  expect(codes(await monitor.round({ sources: [folder(record)], keys: keys(record), maxAgeSeconds: 0 }))).toEqual([]);
  const copy = await copyOf(record);
  await writeFile(join(copy.dir, "checkpoint"), record.note({ size: 0, root: Buffer.alloc(32, 1) }));
  expect(new FixedClock(NOW).now() < monitor.clock.now()).toBe(true);
  const wrong = await monitor.round({ sources: [copy.source], keys: keys(record), maxAgeSeconds: 0 });
  expect([codes(wrong)[0], wrong.newCheckpoints]).toEqual(["tampered", 0]);
  await writeFile(join(copy.dir, "checkpoint"), record.note({ size: 0, root: EMPTY_ROOT }));
  const empty = await monitor.round({ sources: [copy.source], keys: keys(record), maxAgeSeconds: 0 });
  expect([codes(empty), monitor.state.count("unproven")]).toEqual([["rollback"], 0]);
});

test("below the policy a checkpoint does not lead; with its cosignatures it does, and it counts as evidence before", async () => {
  const [first, second] = await pair(10);
  const north = noteSigner("north.example/w1", 21);
  const vkey = formatVkey(north, COSIGNATURE);
  const policy = readPolicy(Buffer.from(`witness north ${vkey}\nquorum north\n`));
  const given = { keys: { ...keys(first), policy } };
  const copy = await copyOf(first);
  const own = await readFile(join(copy.dir, "checkpoint"));
  const monitor = await bed();
  const before = await monitor.round({ sources: [copy.source], ...given });
  expect([codes(before), before.head, before.newCheckpoints]).toEqual([["unwitnessed"], null, 1]);
  const line = cosignatureLine(parseNote(own).text, north, new Date(NOW));
  await writeFile(join(copy.dir, "checkpoint"), Buffer.concat([own, Buffer.from(line)]));
  const after = await monitor.round({ sources: [copy.source], ...given });
  expect([codes(after), after.head?.size, after.newCheckpoints]).toEqual([[], 10, 0]);
  for (const [one, name] of [
    [first, "one"],
    [second, "other"],
  ] as const)
    await fill(one, name, 5);
  const forked = await monitor.round({ sources: [folder(first), folder(second)], ...given });
  expect([codes(forked)[0], forked.head?.size]).toEqual(["fork", 10]);
});

/** The checkpoint without the line of the log's own witness. */
const withoutWitness = (note: Buffer): Buffer =>
  Buffer.from(note.toString().replaceAll(/^\u2014 \S+\/witness .*\n/gm, ""));

test.each<[string, (note: Buffer, record: PublicRecord) => Buffer]>([
  ["that the log's own witness did not cosign", (note) => withoutWitness(note)],
  ["cosigned a year ahead", (note, record) => record.note(headOfNote(note), "2027-11-21T12:00:00.000Z")],
])("a fork %s is kept from a source as from a peer, and proven", async (_, change) => {
  const [first, second] = await pair(10);
  await fill(first, "one", 5);
  await fill(second, "other", 3);
  const monitor = await bed();
  await monitor.round({ sources: [folder(first)], keys: keys(first) });
  const forked = new WatchedSource(join(second.dir, "public"));
  forked.shown.set("checkpoint", change(Buffer.from((await second.store.get("checkpoint"))!.bytes), second));
  const round = await monitor.round({ sources: [folder(first), forked], keys: keys(first) });
  expect([codes(round), round.head?.size, round.newCheckpoints]).toEqual([["fork", "tampered"], 15, 1]);
  expect((await provenFile(monitor, round.forks[0]?.file, first)).smaller.size).toBe(13);
});

test("a checkpoint without its witness does not lead, and leads once a source shows it cosigned", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 10);
  const monitor = await bed();
  await monitor.round({ sources: [folder(record)], keys: keys(record) });
  await fill(record, "b", 10);
  const source = new WatchedSource(join(record.dir, "public"));
  source.shown.set("checkpoint", withoutWitness(Buffer.from((await record.store.get("checkpoint"))!.bytes)));
  const before = await monitor.round({ sources: [source], keys: keys(record) });
  expect([codes(before), before.head?.size, before.newCheckpoints]).toEqual([["tampered"], 10, 1]);
  source.shown.clear();
  const after = await monitor.round({ sources: [source], keys: keys(record) });
  expect([codes(after), after.head?.size, after.newCheckpoints]).toEqual([[], 20, 0]);
});
