import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { EvidenceDraft } from "../../../pipelines/4-publish/filings.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import { archiveManifestKey } from "../../../pipelines/record/archive.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import { archiveDay } from "../../helpers/archive-draft.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";
import { capOf, PublicRecord } from "../../helpers/public-record.ts";
import { LIES, type Lie, LyingSource } from "./lies.ts";
import { keysOf, Mirror, publishAll, publishMore, sourceDir, specOf, WatchedSource } from "./testbed.ts";

/**
 * Every lie about every kind of object against a mirror that was there before: about the tree and its keys it keeps the
 * old snapshot and names the key; about what lies beside the tree it goes on and owes the key. After each the folder is
 * proven again. Lies about history are in faults.test.ts, about segments in segment.test.ts.
 */
const draw = drawn(SEED);
const DAY = "2026-11-10";
const CAP = capOf(specOf("a0"));
let record: PublicRecord;
let before: Mirror;
let [first, size] = [0, 0];
const keys: Record<string, string> = {};
const opened: Mirror[] = [];

const T = `${DAY}T01:00:00.000Z`;

async function publishEvidence(): Promise<string> {
  const text = Buffer.from(
    `{"capability_id":"${CAP}","fault":null,"obs_id":"rec_1","position":0,"t":"${T}","topic":"observations.free"}\n`,
  );
  const packed = compress(text);
  const bucket = bucketOf(CAP);
  const unpacked_sha256 = sha256hex(text);
  const draft: EvidenceDraft = {
    ...{ kind: "evidence", day: DAY, freeze: 0, part: 1, parts: 1, holds: "rows", bucket, below: null, rows: 1 },
    ...{
      positions: { "observations.free": 1 },
      key: evidenceKey(DAY, bucket, unpacked_sha256),
      sha256: sha256hex(packed),
      bytes: packed.length,
    },
    ...{ unpacked_sha256, unpacked_bytes: text.length },
  };
  await record.store.create(draft.key!, packed);
  await record.publish([draft]);
  return draft.key!;
}

async function publishArchive(): Promise<{ file: string; manifest: string }> {
  const none = { amount: null, asset: null, fault: null, latency_ms: null, state: null, status: null };
  const row = { ...none, capability_id: CAP, counts: true, networks: [], observed_at: T, protocols: [] };
  const probes = `${canonicalText({ ...row, record_id: "rec_1", terms_sha256: null })}\n`;
  const files = archiveDay(record.keys.cards, DAY, probes);
  for (const { key, packed } of files) await record.store.create(key, packed);
  await record.publish(...files.map(({ draft }) => [draft]));
  const [{ key, draft }] = files as [(typeof files)[number]];
  return { file: key, manifest: archiveManifestKey(draft.manifest.id) };
}

beforeAll(async () => {
  console.log(`lies: seed ${SEED}`);
  record = await PublicRecord.open();
  await publishAll(record, "a", 230);
  first = record.committer.fold.size;
  before = await Mirror.open();
  await before.run(new WatchedSource(sourceDir(record)), { keys: keysOf(record) });
  keys.evidence = await publishEvidence();
  const { file, manifest } = await publishArchive();
  keys["archive object"] = file;
  keys.manifest = manifest;
  await publishMore(record, "b", 40);
  const { fold } = record.committer;
  size = fold.size;
  const list = JSON.parse(Buffer.from((await record.store.get(fold.index!.key))!.bytes).toString()) as {
    shards: { sha256: string }[];
  };
  Object.assign(keys, {
    checkpoint: "checkpoint",
    bundle: "tile/entries/000",
    "bundle of the edge": `tile/entries/001.p/${size - 256}`,
    tile: `tile/0/001.p/${size - 256}`,
    "index list": fold.index!.key,
    shard: `index/shard/${list.shards[0]!.sha256}.ndjson.zst`,
    "key document": fold.keys!.key,
  });
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(async () => {
  await before.close();
  await record.close();
});

const mirror = async (): Promise<Mirror> => {
  const own = await Mirror.open(before);
  opened.push(own);
  return own;
};
const honest = () => new WatchedSource(sourceDir(record));
const liar = (key: string, lie: Lie) => new LyingSource(honest(), key, lie, draw());
const lies = Object.keys(LIES) as Lie[];
const table = (objects: string[]) => objects.flatMap((object) => lies.map((lie) => [object, lie] as const));

/** Errors by which a run may end; none of them is a fault of ours. */
const REFUSALS = /^(?:Tampered|Unproven|Oversized|MissingObject|SourceDown)$/;

describe(`what the snapshot stands on (seed ${SEED})`, () => {
  it.each(table(["checkpoint", "bundle", "bundle of the edge", "tile", "key document"]))(
    "%s, %s: the old snapshot stays, the key is named",
    async (object, lie) => {
      const own = await mirror();
      const key = keys[object]!;
      const error = await own.run(liar(key, lie)).then(
        () => null,
        (fault: Error) => fault,
      );
      expect(error?.name).toMatch(REFUSALS);
      expect(error?.message).toContain(error?.name === "Tampered" && object === "tile" ? "e" : key);
      expect(await own.proven(record)).toBe(first);
      if (lie !== "tampered") return;
      expect(await own.run(honest())).toMatchObject({ result: "synced", tree_size: size, missing: [] });
      expect(await own.proven(record, true)).toBe(size);
    },
  );
});

describe(`what lies beside it (seed ${SEED})`, () => {
  it.each(table(["index list", "shard", "evidence", "archive object"]))(
    "%s, %s: the snapshot goes on and the key is missing, until it is there",
    async (object, lie) => {
      const own = await mirror();
      const key = keys[object]!;
      const done = await own.run(liar(key, lie));
      expect(done).toMatchObject({ result: "synced", tree_size: size });
      const packedOtherwise = done.missing.length === 0;
      // A shard is packed again here: a bit that changes nothing of its text changes nothing here either.
      expect([object, lie, packedOtherwise]).toEqual([
        object,
        lie,
        packedOtherwise && object === "shard" && lie === "tampered",
      ]);
      if (packedOtherwise) return;
      expect(done.missing.map((one) => one.key)).toEqual([key]);
      const beside =
        object === "index list" ? await shardsOf(own) : object === "archive object" ? [keys.manifest!] : [];
      expect(await own.proven(record, false, [key, ...beside])).toBe(size);
      // The hint still names the index that is whole here.
      const hint = JSON.parse(Buffer.from((await own.publicStore.get("hint/index.json"))!.bytes).toString());
      expect(hint.tree_size).toBe(/index|shard/.test(object) ? first - 1 : size - 1);
      expect(await own.run(honest())).toMatchObject({ result: "idle", missing: [] });
      if (lie !== "missing") return;
      expect(await own.proven(record, true)).toBe(size);
      expect(await own.publicStore.head(keys.manifest!)).not.toBeNull();
      const idle = honest();
      await own.run(idle);
      expect(idle.asked).toEqual(["checkpoint"]);
    },
  );

  it("a source that answers for nothing beside the tree is not asked for everything", async () => {
    const own = await Mirror.open();
    opened.push(own);
    const from = honest();
    const asked: string[] = [];
    from.onGet = (key) => {
      if (!/^(?:index|evidence|archive)\//.test(key)) return;
      asked.push(key);
      LIES["5xx"](key);
    };
    const done = await own.run(from, { keys: keysOf(record), width: 1 });
    expect(done.missing.length).toBeGreaterThanOrEqual(asked.length);
    expect(asked.length).toBeLessThanOrEqual(5);
    const { missing } = await own.run(honest());
    expect(missing).toEqual([]);
    expect(await own.proven(record, true)).toBe(size);
  });
});

/** Shards that only the missing list names are not known here, so not here. */
async function shardsOf(own: Mirror): Promise<string[]> {
  const list = JSON.parse(Buffer.from((await record.store.get(keys["index list"]!))!.bytes).toString()) as {
    shards: { sha256: string }[];
  };
  const named = list.shards.map(({ sha256 }) => `index/shard/${sha256}.ndjson.zst`);
  const here = await Promise.all(named.map((key) => own.publicStore.head(key)));
  return named.filter((_, i) => here[i] === null);
}
