import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { packBundle, unpackBundle } from "../../../infra/tree/bundle.ts";
import { openCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { COSIGNATURE, formatVkey } from "../../../infra/tree/note.ts";
import { readPolicy, Unwitnessed } from "../../../infra/tree/policy.ts";
import { MissingObject, Tampered } from "../../../infra/tree/tiles.ts";
import { Forked, Oversized, Rollback, Stale, Unproven } from "../../../pipelines/published/errors.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { capOf, cardOf, listingDraft, NOW, ORIGIN, PublicRecord } from "../../helpers/public-record.ts";
import { auditOf } from "../../helpers/published.ts";
import { noteSigner } from "../../helpers/witnessed.ts";
import {
  grow,
  keysOf,
  Mirror,
  publishAll,
  publishKeys,
  publishMore,
  sourceDir,
  specOf,
  WatchedSource,
} from "./testbed.ts";

/** A record at two sizes, a mirror of the first one, and another history under the same keys. */
let record: PublicRecord;
let other: PublicRecord;
let before: Mirror;
let first: number;
let size: number;
let firstNote: Uint8Array;
const opened: Mirror[] = [];
const mirror = async (): Promise<Mirror> => {
  const made = await Mirror.open(before);
  opened.push(made);
  return made;
};
const source = (of = record) => new WatchedSource(sourceDir(of));
const bytesOf = async (key: string, of = record) => Buffer.from((await of.store.get(key))!.bytes);

beforeAll(async () => {
  record = await PublicRecord.open();
  other = await PublicRecord.open(record.keys);
  for (const [one, prefix] of [
    [record, "a"],
    [other, "z"],
  ] as const) {
    await publishAll(one, prefix, 260);
  }
  first = record.committer.fold.size;
  firstNote = await bytesOf("checkpoint");
  before = await Mirror.open();
  await before.run(source(), { keys: keysOf(record) });
  await publishMore(record, "b", 260);
  size = record.committer.fold.size;
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(async () => {
  await before.close();
  await record.close();
  await other.close();
});

/** Run against what the source shows: it must fail so, and the old snapshot must stand. */
async function refused(from: WatchedSource, fault: new (...all: never[]) => Error, says: string | RegExp) {
  const own = await mirror();
  const run = own.run(from);
  await expect(run).rejects.toThrow(fault);
  await expect(run).rejects.toThrow(says);
  expect(await own.proven(record)).toBe(first);
  expect(Buffer.from((await own.publicStore.get("checkpoint"))!.bytes)).toEqual(Buffer.from(firstNote));
  return own;
}

const flip = (bytes: Buffer, at: number): Buffer => {
  const changed = Buffer.from(bytes);
  changed[at]! ^= 1;
  return changed;
};
const edge = () => size - 512;
const oneEntryChanged = async (key: string, count: number) => {
  const entries = await unpackBundle(await bytesOf(key), count);
  const at = entries.findIndex((entry) => entry.includes("https"));
  entries[at] = Buffer.from(entries[at]!.toString("utf8").replace("https", "httpx"));
  return packBundle(entries);
};

type Change = [what: string, key: () => string | Promise<string>, bytes: (key: string) => unknown, fault: typeof Error];
const CHANGES: Change[] = [
  ["a bundle with an entry changed", () => "tile/entries/001", (key) => oneEntryChanged(key, 256), Tampered as never],
  [
    "a bundle with one entry less",
    () => "tile/entries/001",
    async (key) => packBundle((await unpackBundle(await bytesOf(key), 256)).slice(1)),
    Tampered as never,
  ],
  ["a bundle that is no gzip", () => "tile/entries/001", () => Buffer.from("junk"), Tampered as never],
  ["a bundle that is not there", () => `tile/entries/002.p/${edge()}`, () => null, MissingObject as never],
  [
    "a tile of the right edge changed",
    () => `tile/0/002.p/${edge()}`,
    async (key) => flip(await bytesOf(key), 40),
    Tampered as never,
  ],
  [
    "a tile cut short",
    () => `tile/0/002.p/${edge()}`,
    async (key) => (await bytesOf(key)).subarray(0, 31),
    Tampered as never,
  ],
  ["a tile that is not there", () => "tile/1/000.p/2", () => null, MissingObject as never],
  ["keys of a stranger", () => "keys/1.json", async (key) => flip(await bytesOf(key), 30), Unproven as never],
  [
    "a checkpoint whose signature is another's",
    () => "checkpoint",
    async (key) => {
      const text = (await bytesOf(key)).toString("utf8");
      return Buffer.from(text.replace(`\n${size}\n`, `\n${size + 1}\n`));
    },
    Unproven as never,
  ],
  [
    "a checkpoint of another log",
    () => "checkpoint",
    async (key) => Buffer.from((await bytesOf(key)).toString("utf8").replaceAll(ORIGIN, "another.test")),
    Unproven as never,
  ],
  ["a checkpoint that is no note", () => "checkpoint", () => Buffer.from("<html>"), Unproven as never],
  ["no checkpoint", () => "checkpoint", () => null, MissingObject as never],
];

describe("a source that lies is named with key, expected and got, and the old snapshot stays", () => {
  it.each(CHANGES)("%s", async (_, keyOf, bytes, fault) => {
    const from = source();
    const key = await keyOf();
    from.shown.set(key, (await bytes(key)) as Uint8Array | null);
    const named = key.startsWith("tile/0/002.p/") ? /tile\/0\/002|right edge/ : key;
    await refused(from, fault as never, named);
  });

  it("a file that is longer than its object can be is not read", async () => {
    await expect(new DirectorySource(sourceDir(record)).get("tile/0/000", 100)).rejects.toThrow(Oversized);
  });

  it("mix and match: the checkpoint of one history with the tiles and then the bundles of another", async () => {
    await grow(other, "y", 300);
    const from = source(other);
    for (const key of ["checkpoint", `tile/0/002.p/${edge()}`, "tile/1/000.p/2"]) {
      from.shown.set(key, await bytesOf(key));
    }
    await refused(from, Tampered, "tile/0/001 is not what the checkpoint commits to");
    for (const key of ["tile/0/001", `tile/entries/002.p/${edge()}`]) from.shown.set(key, await bytesOf(key));
    await refused(
      from,
      Tampered,
      /tile\/entries\/001 is not what the checkpoint commits to: expected [0-9a-f]{64}, got/,
    );
  });

  it("a card that its own log published and nobody's key signed", async () => {
    const lying = await PublicRecord.open();
    await publishKeys(lying);
    const spec = specOf("liar");
    const [grade] = lying.grades([cardOf(spec)], "B.");
    const card = { ...(grade as unknown as { card: object }).card, composite: 0.99 };
    await lying.publish([listingDraft(spec)], [{ ...grade, card } as never]);
    const own = await Mirror.open();
    opened.push(own);
    const run = own.run(new WatchedSource(sourceDir(lying)));
    await expect(run).rejects.toThrow("card of leaf 2 does not hold");
    await expect(run).rejects.toThrow("bad_signature");
    expect(await own.publicStore.get("checkpoint")).toBeNull();
    await lying.close();
  });
});

describe("history", () => {
  it("rollback: fewer leaves than were proven", async () => {
    const own = await mirror();
    await own.run(source());
    const from = source();
    from.shown.set("checkpoint", firstNote);
    await expect(own.run(from)).rejects.toThrow(Rollback);
    expect(await own.proven(record, true)).toBe(size);
  });

  it("rollback also against a checkpoint that was seen and whose run was cut off", async () => {
    const own = await mirror();
    const cut = source();
    cut.onGet = (key) => {
      if (key.startsWith("tile/entries")) throw new Error("cut off");
    };
    await expect(own.run(cut)).rejects.toThrow("cut off");
    const from = source();
    from.shown.set("checkpoint", firstNote);
    await expect(own.run(from)).rejects.toThrow(new Rollback(size, first));
  });

  it.each([
    ["as many leaves", () => first, /two roots for \d+ leaves/],
    ["more leaves", () => 0, /does not begin with that of \d+/],
  ])("fork: another history with %s, both notes kept", async (_, at, says) => {
    const from = source(other);
    if (at()) {
      from.shown.set("checkpoint", record.note({ size: at(), root: Buffer.alloc(32, 7) }));
    } else {
      await grow(other, "x", 300);
    }
    const own = await refused(from, Forked, says);
    const [file] = await own.stateStore.list("fork/");
    const text = Buffer.from((await own.stateStore.get(file!.key))!.bytes).toString("utf8");
    const notes = text.split(/^== .* ==\n/m).slice(1);
    const heads = notes.map((note, i) => openCheckpoint(Buffer.from(i ? note : note.slice(0, -1)), record.trust));
    expect(heads[0]).toMatchObject({ size: first });
    expect(heads[1]!.root.equals(heads[0]!.root)).toBe(false);
    // Honest again: what was proven still stands, and goes on.
    expect(await own.run(source())).toMatchObject({ result: "synced", tree_size: size });
  });

  it.each([
    ["as many leaves", () => first],
    ["more leaves", () => 0],
  ])("fork, not stale: a checkpoint of %s that is older than accepted is kept as evidence", async (_, at) => {
    const from = source(other);
    if (at()) from.shown.set("checkpoint", record.note({ size: at(), root: Buffer.alloc(32, 7) }));
    else await grow(other, "w", 300);
    const own = await mirror();
    own.clock.set(new Date(Date.parse(NOW) + 25 * 3_600_000));
    await expect(own.run(from, { keys: keysOf(record) })).rejects.toThrow(Forked);
    expect(await own.stateStore.list("fork/")).toHaveLength(1);
    // The same history, as old: stale, and what is new of it is not pending.
    await expect(own.run(source(), { keys: keysOf(record) })).rejects.toThrow(Stale);
    expect(await own.stateStore.head("pending.json")).toBeNull();
  });

  const north = noteSigner("north.example/w1", 21);
  const policy = readPolicy(Buffer.from(`witness north ${formatVkey(north, COSIGNATURE)}\nquorum north\n`));
  it.each([
    ["fewer witnesses than the policy needs, for as many leaves", () => first, { policy }, Unwitnessed],
    ["fewer witnesses than the policy needs, for more leaves", () => 0, { policy }, Unwitnessed],
    ["no cosignature of the log's own witness", () => first, {}, Unproven],
  ])("fork, not refused: a checkpoint with %s, is kept as evidence", async (_, at, more, refusal) => {
    const from = source(other);
    if (at()) from.shown.set("checkpoint", record.note({ size: at(), root: Buffer.alloc(32, 7) }));
    else await grow(other, "v", 300);
    const isCosigned = "policy" in more;
    const onlyLog = (note: Uint8Array) =>
      Buffer.from(`${Buffer.from(note).toString().split("\n").slice(0, 5).join("\n")}\n`);
    if (!isCosigned) from.shown.set("checkpoint", onlyLog(from.shown.get("checkpoint")!));
    const own = await mirror();
    const keys = { ...keysOf(record), ...more };
    await expect(own.run(from, { keys })).rejects.toThrow(Forked);
    expect(await own.stateStore.list("fork/")).toHaveLength(1);
    // The same history, as little cosigned, is refused as before. So is one whose tiles are not shown.
    const honest = source();
    if (!isCosigned) honest.shown.set("checkpoint", onlyLog(await bytesOf("checkpoint")));
    await expect(own.run(honest, { keys })).rejects.toThrow(refusal);
    const [bare, note] = [source(other), await bytesOf("checkpoint", other)];
    bare.shown.set("checkpoint", isCosigned ? note : onlyLog(note));
    bare.onGet = (key) => {
      if (key !== "checkpoint") bare.shown.set(key, null);
    };
    await expect(own.run(bare, { keys })).rejects.toThrow(refusal);
    expect(await own.stateStore.list("fork/")).toHaveLength(1);
  });

  it("stale: the newest checkpoint is older than accepted, and a witness has to say so", async () => {
    const from = source();
    const own = await mirror();
    own.clock.set(new Date(Date.parse(NOW) + 61_000));
    await expect(own.run(from, { maxAgeSeconds: 60 })).rejects.toThrow(Stale);
    expect(await own.proven(record)).toBe(first);
    const alone = await Mirror.open();
    opened.push(alone);
    const keys = { log: keysOf(record).log };
    await expect(alone.run(from, { keys, maxAgeSeconds: 60 })).rejects.toMatchObject({ code: "usage" });
    expect(await alone.run(from, { keys })).toMatchObject({ tree_size: size, cosigned_at: null });
  });
});

it("a leaf of the table of related parties with a wrong hash: the mirror refuses another's, an audit the log's own", async () => {
  const thief = { cap: capOf(specOf("k0")), domain: "k0.example", pay_to: "0xabc" };
  const table = sha256hex(`${canonicalText(thief)}\n`);
  const leafOf = (kin: string) => ({ kind: "kin" as const, computed_at: NOW, kin, add: [thief], remove: [] });
  const record = await PublicRecord.open();
  const own = await Mirror.open();
  try {
    await publishKeys(record);
    await record.publish([listingDraft(specOf("k0"))], [leafOf(table)]);
    const from = source(record);
    const key = "tile/entries/000.p/3";
    const entries = await unpackBundle(await bytesOf(key, record), 3);
    const wrong = entries.map((entry) => Buffer.from(entry.toString().replace(table, "0".repeat(64))));
    expect(wrong).not.toEqual(entries);
    from.shown.set(key, await packBundle(wrong));
    await expect(own.run(from, { keys: keysOf(record) })).rejects.toThrow(Tampered);
    expect(await own.publicStore.head("checkpoint")).toBeNull();
    const problemsNow = async () => (await auditOf(source(record))).findings.flatMap(({ problems }) => problems);
    expect(await problemsNow()).toEqual([]);
    await record.publish([leafOf("0".repeat(64))]);
    const expected = `the table ${"0".repeat(64)}`;
    expect(await problemsNow()).toMatchObject([{ key: "leaf 3", expected, got: table }]);
  } finally {
    await own.close();
    await record.close();
  }
});
