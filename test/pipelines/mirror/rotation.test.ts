import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { canonicalBytes, sha256hex } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { PURPOSES } from "../../../infra/keys/jwk.ts";
import { createKeyring, type Keys, keysDocument, loadKeys, rotateKey } from "../../../infra/keys/keys.ts";
import { type Signer, signObject } from "../../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { packBundle, unpackBundle } from "../../../infra/tree/bundle.ts";
import { openCheckpoint, signCheckpoint, trustOf } from "../../../infra/tree/checkpoint.ts";
import { leafHash } from "../../../infra/tree/hash.ts";
import { COSIGNATURE, ED25519, formatVkey, parseNote, parseVkey } from "../../../infra/tree/note.ts";
import { entriesPath, tilePath } from "../../../infra/tree/path.ts";
import { TreeState } from "../../../infra/tree/tiles.ts";
import { createPublisher, type Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { writeRun } from "../../../pipelines/4-publish/runs.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import { pinsOfKeys } from "../../../pipelines/mirror/rotation.ts";
import { SourceDown, Unproven } from "../../../pipelines/published/errors.ts";
import { createObjectFetch } from "../../../pipelines/published/reader.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { type GivenKeys, Pins, trustOfPins } from "../../../pipelines/published/trust.ts";
import { ORIGIN } from "../../helpers/public-record.ts";
import { leavesOf, ofKind } from "../../helpers/published.ts";
import { header, line } from "../4-publish/world.ts";
import { MonitorBed } from "../monitor/testbed.ts";
import { Mirror, WatchedSource } from "./testbed.ts";

const T0 = Date.parse("2026-11-21T00:00:00.000Z");
const HOUR = 3_600_000;
const at = (hours: number): string => new Date(T0 + hours * HOUR).toISOString();

let dir: string;
let privateStore: Store;
let publicStore: Store;
const clock = new FixedClock(at(0));
const opened: Mirror[] = [];

const keys = (): Keys => loadKeys(join(dir, "keys"));

/** A publisher as it is after a start: with the keys that the folder holds now, which it publishes first. */
async function started(): Promise<Publisher> {
  const signers = keys();
  const publisher = createPublisher({
    ...{ privateStore, publicStore, signers, clock, origin: ORIGIN, partitions: 2 },
    ...{ logger: createLogger("silent"), metrics: createMetrics() },
  });
  await publisher.start();
  await publisher.publishKeys(keysDocument(signers.ring));
  return publisher;
}

/** One more leaf at this hour, by a publisher that starts now. */
async function publishAt(hours: number): Promise<void> {
  clock.set(at(hours));
  const publisher = await started();
  const salt_hash = hours.toString(16).padStart(64, "0");
  const day = new Date(T0 + hours * 24 * HOUR).toISOString().slice(0, 10);
  await publisher.publishSchedule({ day, salt_hash, covered_root: "00".repeat(32), covered: 0 });
  await publisher.refreshCheckpoint();
}

async function mirrorAt(hours: number, like?: Mirror): Promise<Mirror> {
  const mirror = await Mirror.open(like);
  opened.push(mirror);
  mirror.clock.set(at(hours));
  return mirror;
}

const sync = (mirror: Mirror, given = {}, from = join(dir, "public")) =>
  mirror.run(new DirectorySource(from), { maxAgeSeconds: 0, ...given });

const treeSize = async (): Promise<number> =>
  Number(
    Buffer.from((await publicStore.get("checkpoint"))!.bytes)
      .toString()
      .split("\n")[1],
  );
const signatures = async (): Promise<number> =>
  parseNote((await publicStore.get("checkpoint"))!.bytes).signatures.length;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "rotation-"));
  createKeyring(join(dir, "keys"), new Date(at(-24)));
  privateStore = await openDirectoryStore(join(dir, "private"));
  publicStore = await openDirectoryStore(join(dir, "public"));
  await publishAt(0);
});

afterEach(async () => {
  for (const mirror of opened.splice(0)) await mirror.close();
  await privateStore.close();
  await publicStore.close();
  await rm(dir, { recursive: true, force: true });
});

/** All four keys replaced at hour 1; the old ones count until hour 25. */
function rotateAll(): void {
  for (const purpose of PURPOSES) rotateKey(join(dir, "keys"), purpose, new Date(at(1)), new Date(at(25)));
}

/**
 * A copy of the record as a thief of the cards key shows it: a further keys document that the stolen key signed, with
 * keys of the thief beside those of the log, its leaf behind those of the log, and a checkpoint under the thief's keys.
 */
async function copyOfThief(stolen: Signer, computed_at: string, hours: number): Promise<string> {
  const copy = join(dir, "thief");
  await cp(join(dir, "public"), copy, { recursive: true });
  createKeyring(join(dir, "keys-of-thief"), new Date(at(-24)));
  const thief = loadKeys(join(dir, "keys-of-thief"));
  const store = await openDirectoryStore(copy);
  const hint = JSON.parse(Buffer.from((await store.get("hint/keys.json"))!.bytes).toString());
  const n = hint.n + 1;
  const listed = [...keysDocument(keys().ring).keys, ...keysDocument(thief.ring).keys];
  const members = { schema: "svc.keys.v1", n, previous: hint.sha256, computed_at, keys: listed };
  const bytes = canonicalBytes(signObject(stolen, members), { published: true });
  const named = { n, key: `keys/${n}.json`, sha256: sha256hex(bytes) };
  await store.create(named.key, bytes);
  const head = openCheckpoint((await store.get("checkpoint"))!.bytes, checkpointKeys(ORIGIN, keys()));
  const { size } = head;
  const draft = { kind: "keys", index: size, seq: n, at: at(hours), ...named, bytes: bytes.length };
  const leaf = Buffer.from(canonicalBytes(draft));
  const { state, tiles } = (await TreeState.load(size, head.root, createObjectFetch(store))).append([leafHash(leaf)]);
  for (const tile of tiles) await store.create(tilePath(tile.level, tile.n, tile.width), tile.bytes);
  const entries = await unpackBundle((await store.get(entriesPath(0, size)))!.bytes, size);
  await store.create(entriesPath(0, size + 1), await packBundle([...entries, leaf]));
  const log = { name: ORIGIN, publicKey: thief.log.publicKey, sign: thief.log.sign };
  const witness = { name: `${ORIGIN}/witness`, publicKey: thief.witness.publicKey, sign: thief.witness.sign };
  const note = signCheckpoint(
    { origin: ORIGIN, size: size + 1, root: state.root() },
    log,
    witness,
    new Date(at(hours)),
  );
  for (const [key, value] of [
    ["checkpoint", note],
    ["hint/keys.json", canonicalBytes({ ...named, leaf: size })],
  ] as const) {
    await store.swap(key, value, (await store.head(key))!.etag);
  }
  await store.close();
  return copy;
}

describe("keys are rotated", () => {
  test("old and new sign side by side until the old ones retire, and the documents chain", async () => {
    expect(await signatures()).toBe(2);
    rotateAll();
    await publishAt(2);
    expect(await signatures()).toBe(4);
    await publishAt(26);
    expect(await signatures()).toBe(2);
    const fresh = await mirrorAt(26);
    expect(await sync(fresh)).toMatchObject({ result: "synced", tree_size: 5 });
  });

  test("runs that waited during the rotation, and a list of the market, are signed by a key valid at their time", async () => {
    const writeRunAt = (hours: number, n: number) =>
      writeRun(privateStore, header(at(hours), n), [line("a", at(hours), [n === 1 ? "B" : "D"])]);
    await writeRunAt(0.5, 1);
    rotateAll();
    await writeRunAt(1.5, 2);
    clock.set(at(2));
    const publisher = await started();
    const runs = await publisher.takeNewRuns();
    expect(runs.map(({ taken, cards }) => [taken, cards])).toEqual([
      [true, 1],
      [true, 1],
    ]);
    await publisher.buildIndex();
    await publishAt(3);
    const { cards, retired } = keys();
    const [first] = retired.filter(({ signer }) => signer.purpose === "cards");
    const leaves = await leavesOf(publicStore, checkpointKeys(ORIGIN, keys()));
    const kids = ofKind(leaves, "grade").map(({ card }) => card.signing_key_id);
    expect(kids).toEqual([first!.signer.kid, cards.kid]);
    const mirror = await mirrorAt(3);
    expect(await sync(mirror)).toMatchObject({ result: "synced", missing: [] });
  });

  test("the cards key is rotated again after the first one retired, and a mirror goes on", async () => {
    rotateAll();
    await publishAt(2);
    rotateKey(join(dir, "keys"), "cards", new Date(at(30)), new Date(at(54)));
    await publishAt(31);
    const fresh = await mirrorAt(31);
    expect(await sync(fresh)).toMatchObject({ result: "synced", missing: [] });
  });

  test("a mirror that came by during the overlap goes on without an operator", async () => {
    const mirror = await mirrorAt(0);
    await sync(mirror);
    rotateAll();
    await publishAt(2);
    mirror.clock.set(at(3));
    expect(await sync(mirror)).toMatchObject({ result: "synced" });
    await publishAt(26);
    mirror.clock.set(at(26));
    expect(await sync(mirror)).toMatchObject({ result: "synced", tree_size: 5 });
  });

  test.each([
    ["pinned on first use", false],
    ["told the first key on every run", true],
  ])("a mirror %s that did not run during the overlap follows the documents", async (_, told) => {
    const log = { name: ORIGIN, publicKey: keys().log.publicKey };
    const given = told ? { keys: { log: formatVkey(log, ED25519) } } : {};
    const mirror = await mirrorAt(0);
    await sync(mirror, given);
    rotateAll();
    await publishAt(2);
    await publishAt(30);
    mirror.clock.set(at(30));
    const said: string[] = [];
    const done = await sync(mirror, { ...given, say: (text: string) => said.push(text) });
    expect(done).toMatchObject({ result: "synced", tree_size: 5 });
    expect(said.join()).toContain("rotated");
    expect(await sync(mirror, { ...given, say: (text: string) => said.push(text) })).toMatchObject({ result: "idle" });
    expect(said).toHaveLength(1);
  });

  test("a mirror that died right after it committed the rotation goes on, and is not stuck with its old keys", async () => {
    const mirror = await mirrorAt(0);
    await sync(mirror);
    rotateAll();
    await publishAt(2);
    await publishAt(30);
    mirror.clock.set(at(30));
    const { stateStore } = mirror;
    const dying = new Proxy(stateStore, {
      get: (target, name) => {
        const value = Reflect.get(target, name).bind(target);
        if (name !== "swap") return value;
        return async (...args: Parameters<Store["swap"]>) => {
          if (args[0] === "pins.json") throw new Error("the disk is full");
          return value(...args);
        };
      },
    });
    await expect(sync(mirror, { stateStore: dying })).rejects.toThrow("the disk is full");
    const said: string[] = [];
    const say = (text: string) => said.push(text);
    expect(await sync(mirror, { say })).toMatchObject({ result: "idle", tree_size: 5 });
    expect(said.join()).toContain("rotated");
    await publishAt(31);
    mirror.clock.set(at(31));
    expect(await sync(mirror, { say })).toMatchObject({ result: "synced", tree_size: 6 });
    expect(said).toHaveLength(1);
  });

  test("a retired key opens nothing any more, for mirror and serving", async () => {
    const old = checkpointKeys(ORIGIN, keys());
    const mirror = await mirrorAt(0);
    await sync(mirror);
    rotateAll();
    await publishAt(26);
    mirror.clock.set(at(26));
    await sync(mirror);
    const head = openCheckpoint((await publicStore.get("checkpoint"))!.bytes, checkpointKeys(ORIGIN, keys()));
    const stolen = signCheckpoint(head, old.log, old.witness, new Date(at(27)));
    const copy = join(dir, "copy");
    await cp(join(dir, "public"), copy, { recursive: true });
    const store = await openDirectoryStore(copy);
    await store.swap("checkpoint", stolen, (await store.head("checkpoint"))!.etag);
    await store.close();
    await expect(sync(mirror, {}, copy)).rejects.toThrow(Unproven);
    const ring = keys().ring;
    expect(() => openCheckpoint(stolen, trustOf(ORIGIN, ring, new Date(at(24))))).not.toThrow();
    expect(() => openCheckpoint(stolen, trustOf(ORIGIN, ring, new Date(at(25))))).toThrow("not signed by");
  });

  test("a stolen cards key that was rotated without overlap signs no further document, whatever its date", async () => {
    const stolen = keys().cards;
    rotateKey(join(dir, "keys"), "cards", new Date(at(1)));
    await publishAt(2);
    const mirror = await mirrorAt(3);
    await sync(mirror);
    const pins = Buffer.from((await mirror.stateStore.get("pins.json"))!.bytes);
    for (const [hours, says] of [
      [0.5, `a date not before ${at(2)}`],
      [2, "retired"],
    ] as const) {
      const copy = await copyOfThief(stolen, at(hours), 3);
      await expect(sync(mirror, {}, copy)).rejects.toThrow(says);
      // A mirror without an earlier run reads the document as a leaf, under the keys that it shows.
      await expect(sync(await mirrorAt(3), {}, copy)).rejects.toThrow(says);
      for (const made of [copy, join(dir, "keys-of-thief")]) await rm(made, { recursive: true });
    }
    expect(Buffer.from((await mirror.stateStore.get("pins.json"))!.bytes)).toEqual(pins);
    await publishAt(4);
    mirror.clock.set(at(4));
    expect(await sync(mirror)).toMatchObject({ result: "synced", tree_size: await treeSize() });
  });

  test("documents that another key signed lead nowhere", async () => {
    const mirror = await mirrorAt(0);
    await sync(mirror);
    rotateAll();
    await publishAt(30);
    mirror.clock.set(at(30));
    const copy = join(dir, "copy");
    await cp(join(dir, "public"), copy, { recursive: true });
    const store = await openDirectoryStore(copy);
    const document = JSON.parse(Buffer.from((await store.get("keys/1.json"))!.bytes).toString("utf8"));
    // Signed by the new cards key instead of the one that the mirror knows: a chain that begins with its own end.
    const { signature, signing_key_id, canonicalization, ...unsigned } = document;
    expect([signature, signing_key_id, canonicalization].every(Boolean)).toBe(true);
    const forged = canonicalBytes(signObject(keys().cards, unsigned), { published: true });
    await store.swap("keys/1.json", forged, (await store.head("keys/1.json"))!.etag);
    await store.close();
    await expect(sync(mirror, {}, copy)).rejects.toThrow("keys/1.json");
    expect((await sync(mirror)).result).toBe("synced");
  });
});

describe("a witness that a reader required", () => {
  const vkeys = (from = keys()) => ({
    log: formatVkey({ name: ORIGIN, publicKey: from.log.publicKey }, ED25519),
    witness: formatVkey({ name: `${ORIGIN}/witness`, publicKey: from.witness.publicKey }, COSIGNATURE),
  });
  /** Keys of somebody else, under the names of this log. */
  const strangers = () => {
    createKeyring(join(dir, "keys-of-a-stranger"), new Date(at(-24)));
    return vkeys(loadKeys(join(dir, "keys-of-a-stranger")));
  };
  const pinsOf = async (mirror: Mirror) =>
    Pins.parse(JSON.parse(Buffer.from((await mirror.stateStore.get("pins.json"))!.bytes).toString()));

  test("and that is another one than the pinned one has to have cosigned, for mirror and monitor", async () => {
    const own = vkeys();
    const wrong = strangers();
    const [mirror, bed] = [await mirrorAt(1), await MonitorBed.open()];
    bed.clock.set(at(1));
    const round = (given: GivenKeys) =>
      bed.round({ sources: [new DirectorySource(join(dir, "public"))], maxAgeSeconds: 0, keys: given });
    await sync(mirror);
    expect((await round({})).faults).toEqual([]);
    const pins = await pinsOf(mirror);
    expect(pins.witnesses).toEqual([own.witness]);
    for (const given of [{ log: own.log, witness: wrong.witness }, wrong, { log: wrong.log }]) {
      await expect(sync(mirror, { keys: given })).rejects.toThrow(Unproven);
      expect((await round(given)).faults).toMatchObject([{ code: "tampered" }]);
      expect(await pinsOf(mirror)).toEqual(pins);
    }
    expect(await sync(mirror, { keys: own })).toMatchObject({ result: "idle" });
    expect((await round(own)).faults).toEqual([]);
    await bed.close();
  });

  test("stays required when the log's key alone is given, old or new", async () => {
    const before = vkeys();
    const mirror = await mirrorAt(0);
    await sync(mirror, { keys: before });
    rotateAll();
    await publishAt(2);
    await publishAt(30);
    const after = vkeys();
    mirror.clock.set(at(30));
    for (const given of [{ log: after.log }, { log: before.log }, after, {}]) {
      await sync(mirror, { keys: given });
      expect((await pinsOf(mirror)).witnesses).toEqual([after.witness]);
      expect(trustOfPins(await pinsOf(mirror)).witness).toBeDefined();
    }
  });

  test("stays required when the newest keys document lists none that is not retired", async () => {
    const document = keysDocument(keys().ring);
    const own = vkeys();
    const withWitness = (change: (key: (typeof document.keys)[number]) => typeof document.keys) => ({
      keys: document.keys.flatMap((key) => (key.purpose === "witness" ? change(key) : [key])),
    });
    for (const jwks of [withWitness(() => []), withWitness((key) => [{ ...key, retired_at: at(1) }])]) {
      const pins = pinsOfKeys(jwks, { ...own }, ORIGIN, new Date(at(2)))!;
      expect(pins).toMatchObject({ logs: [own.log], witness: own.witness, witnesses: [] });
      expect(trustOfPins(pins).witness).toEqual(parseVkey(own.witness, COSIGNATURE));
    }
    const without = pinsOfKeys(document, { log: own.log, witness: null }, ORIGIN, new Date(at(2)))!;
    expect(trustOfPins(without).witness).toBeUndefined();
  });

  test("stays required in a mirror and a monitor, when the log goes on without it", async () => {
    const [mirror, bed] = [await mirrorAt(0), await MonitorBed.open()];
    bed.clock.set(at(0));
    const source = new DirectorySource(join(dir, "public"));
    const round = () => bed.round({ sources: [source] });
    await sync(mirror, { maxAgeSeconds: undefined });
    expect((await round()).faults).toEqual([]);
    const { size } = openCheckpoint((await publicStore.get("checkpoint"))!.bytes, checkpointKeys(ORIGIN, keys()));
    // The log retires its witness without another one, and its next checkpoint has no cosignature.
    clock.set(at(2));
    const publisher = await started();
    const { keys: listed } = keysDocument(keys().ring);
    await publisher.publishKeys({
      keys: listed.map((key) => (key.purpose === "witness" ? { ...key, retired_at: at(1) } : key)),
    });
    await publisher.refreshCheckpoint();
    mirror.clock.set(at(2));
    bed.clock.set(at(2));
    expect(await sync(mirror, { maxAgeSeconds: 86_400 })).toMatchObject({ tree_size: size + 1, cosigned_at: at(2) });
    expect((await round()).faults).toEqual([]);
    const held = (await publicStore.get("checkpoint"))!;
    const text = Buffer.from(held.bytes).toString();
    const uncosigned = text
      .split("\n")
      .filter((row) => !row.includes("/witness "))
      .join("\n");
    expect(uncosigned).not.toBe(text);
    await publicStore.swap("checkpoint", Buffer.from(uncosigned), held.etag);
    await expect(sync(mirror, { maxAgeSeconds: undefined })).rejects.toThrow("not cosigned by");
    await expect(sync(mirror, { maxAgeSeconds: 86_400 })).rejects.toThrow("not cosigned by");
    expect((await round()).faults).toMatchObject([{ code: "tampered" }]);
    expect(Buffer.from((await mirror.publicStore.get("checkpoint"))!.bytes)).toEqual(Buffer.from(held.bytes));
    await bed.close();
  });
});

describe("a monitor", () => {
  test.each([
    ["with the keys that the source shows", false],
    ["with the log's old key", true],
  ])("that starts %s while old and new keys overlap goes on after the overlap", async (_, told) => {
    const log = { name: ORIGIN, publicKey: keys().log.publicKey };
    const given = told ? { keys: { log: formatVkey(log, ED25519) } } : {};
    rotateAll();
    await publishAt(2);
    const bed = await MonitorBed.open();
    const round = () => bed.round({ sources: [new DirectorySource(join(dir, "public"))], maxAgeSeconds: 0, ...given });
    bed.clock.set(at(3));
    expect((await round()).faults).toEqual([]);
    await publishAt(26);
    bed.clock.set(at(26));
    const after = await round();
    expect([after.faults, after.head?.size, after.newCheckpoints]).toEqual([[], await treeSize(), 1]);
    expect((await round()).faults).toEqual([]);
    expect(bed.said.filter((text) => text.includes("rotated"))).toHaveLength(1);
    await bed.close();
  });

  test("whose source did not give the keys document in the first round asks for it again", async () => {
    const bed = await MonitorBed.open();
    const source = new WatchedSource(join(dir, "public"));
    const round = () => bed.round({ sources: [source], maxAgeSeconds: 0 });
    bed.clock.set(at(0));
    source.onGet = (key) => {
      if (key.startsWith("tile/")) throw new SourceDown("watched", key, "it stalls");
    };
    await round();
    expect([bed.state.trusted?.pins.log, bed.state.trusted?.keys]).toEqual([expect.any(String), null]);
    source.onGet = () => undefined;
    expect((await round()).faults).toEqual([]);
    expect(bed.state.trusted?.keys).toMatchObject({ n: 0, key: "keys/0.json" });
    rotateAll();
    await publishAt(26);
    bed.clock.set(at(26));
    expect((await round()).faults).toEqual([]);
    await bed.close();
  });

  test("that saw the log before its keys were rotated follows the keys documents, and no stranger's", async () => {
    const bed = await MonitorBed.open();
    bed.clock.set(at(0));
    const sources = [new DirectorySource(join(dir, "public"))];
    expect((await bed.round({ sources, maxAgeSeconds: 0 })).faults).toEqual([]);
    rotateAll();
    await publishAt(26);
    bed.clock.set(at(26));
    const round = await bed.round({ sources, maxAgeSeconds: 0 });
    expect([round.faults, round.head?.size, bed.state.trusted?.ever.length]).toEqual([[], await treeSize(), 2]);
    expect(bed.said.at(-1)).toMatch(/rotated/);
    // A stranger's document does not continue the chain.
    const strange = await mkdtemp(join(tmpdir(), "rotation-strange-"));
    await cp(join(dir, "public"), strange, { recursive: true });
    createKeyring(join(strange, "keys-of-a-stranger"), new Date(at(-24)));
    const stranger = loadKeys(join(strange, "keys-of-a-stranger"));
    const log = { name: ORIGIN, publicKey: stranger.log.publicKey, sign: stranger.log.sign };
    const witness = { name: `${ORIGIN}/witness`, publicKey: stranger.witness.publicKey, sign: stranger.witness.sign };
    const head = { origin: ORIGIN, size: 99, root: Buffer.alloc(32, 9) };
    await rm(join(strange, "checkpoint"));
    await writeFile(join(strange, "checkpoint"), signCheckpoint(head, log, witness, new Date(at(26))));
    const forged = await bed.round({ sources: [new DirectorySource(strange)], maxAgeSeconds: 0 });
    expect([forged.faults.map(({ code }) => code), forged.newCheckpoints]).toEqual([["tampered"], 0]);
    await rm(strange, { recursive: true, force: true });
    await bed.close();
  });

  test("learns from the tree that a cards key is retired, and no thief of it moves its head or makes it see a fork", async () => {
    const bed = await MonitorBed.open();
    const honest = new DirectorySource(join(dir, "public"));
    bed.clock.set(at(0));
    expect((await bed.round({ sources: [honest] })).faults).toEqual([]);
    const stolen = keys().cards;
    rotateKey(join(dir, "keys"), "cards", new Date(at(1)));
    await publishAt(2);
    bed.clock.set(at(3));
    expect((await bed.round({ sources: [honest] })).faults).toEqual([]);
    const before = bed.state.trusted!;
    expect([before.keys?.n, before.ever.length]).toEqual([1, 1]);
    const hostile = new DirectorySource(await copyOfThief(stolen, at(0.5), 3));
    await publishAt(3);
    const beside = await bed.round({ sources: [hostile, honest] });
    expect(beside).toMatchObject({ forks: [], head: { size: await treeSize() }, newCheckpoints: 1 });
    expect(beside.faults.map(({ code, message }) => [code, message])).toEqual([
      ["tampered", expect.stringContaining(`keys/2.json does not hold: expected a date not before ${at(2)}`)],
    ]);
    expect(bed.state.trusted).toEqual(before);
    expect((await bed.round({ sources: [honest] })).faults).toEqual([]);
    await bed.close();
  });

  test("pins no later keys with a checkpoint whose tree does not begin with the proven one", async () => {
    const bed = await MonitorBed.open();
    const honest = new DirectorySource(join(dir, "public"));
    const stolen = keys().cards;
    // Within the overlap the old key may sign a document. The honest log grows past the tree that the thief has copied.
    rotateKey(join(dir, "keys"), "cards", new Date(at(1)), new Date(at(25)));
    await publishAt(2);
    const hostile = new DirectorySource(await copyOfThief(stolen, at(2), 2));
    await publishAt(3);
    bed.clock.set(at(3));
    expect((await bed.round({ sources: [honest] })).faults).toEqual([]);
    const before = bed.state.trusted;
    const beside = await bed.round({ sources: [honest, hostile] });
    expect(beside).toMatchObject({ forks: [], head: { size: await treeSize() }, newCheckpoints: 0 });
    const expected = expect.stringContaining(
      `expected a tree that begins with the ${await treeSize()} leaves proven here`,
    );
    expect(beside.faults.map(({ code, message }) => [code, message])).toEqual([["tampered", expected]]);
    expect([bed.state.trusted, await bed.files.list("")]).toEqual([before, []]);
    expect((await bed.round({ sources: [honest] })).faults).toEqual([]);
    await bed.close();
  });
});
