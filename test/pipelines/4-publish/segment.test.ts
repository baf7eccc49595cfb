import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decompress } from "zstd-napi";
import { canonicalBytes } from "../../../infra/canonical.ts";
import { signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { EMPTY_ROOT, leafHash } from "../../../infra/tree/hash.ts";
import { subtreeProof, verifySubtree } from "../../../infra/tree/proof.ts";
import { TreeState } from "../../../infra/tree/state.ts";
import { writeTree } from "../../../pipelines/4-publish/apply.ts";
import { type Generation, generationKey } from "../../../pipelines/4-publish/generation.ts";
import { EMPTY_LIVE, grow } from "../../../pipelines/4-publish/live.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/4-publish/read.ts";
import { capOf, listing, ORIGIN, TRUST, World } from "./world.ts";

const BOUNDARY = 65_536;
const BEFORE = BOUNDARY - 6;

let world: World;
/** A log just short of a segment, as another writer left it: made of the smallest leaves there are. */
beforeAll(async () => {
  world = await World.open();
  const at = world.clock.now();
  const cap = capOf("a");
  const entries = Array.from({ length: BEFORE }, (_, i) =>
    Buffer.from(`{"at":"${at.toISOString()}","capability_id":"${cap}","index":${i},"kind":"delisting","seq":${i}}`),
  );
  const growth = grow(EMPTY_LIVE, entries);
  await writeTree(world.publicStore, growth);
  const root = growth.live.tree.root();
  const note = signCheckpoint({ origin: ORIGIN, size: BEFORE, root }, TRUST.log, TRUST.witness, at);
  await world.publicStore.swap("checkpoint", note, null);
  const generation: Generation = {
    v: 1,
    n: 0,
    old: { size: 0, root: EMPTY_ROOT.toString("hex") },
    new: { size: BEFORE, root: root.toString("hex") },
    staging: "staging/none",
    run: null,
    log: null,
    positions: {},
    writer: "another",
    at: at.toISOString(),
  };
  await world.privateStore.create(generationKey(0), canonicalBytes(generation));
});
afterAll(() => world.close());

describe("a log that crosses 65,536 leaves", () => {
  it("gets its segment with the generation that completes it, proven by one hash of level 2", async () => {
    const publisher = world.publisher();
    expect(await world.publicStore.list("segment/")).toEqual([]);
    await publisher.publishListings(Array.from({ length: 10 }, (_, i) => listing(`n-${i}`)));
    expect((await world.publicStore.list("segment/")).map(({ key }) => key)).toEqual(["segment/0.ndjson.zst"]);
    const head = (await readCheckpoint(world.publicStore, TRUST))!;
    expect(head.size).toBe(BEFORE + 10);

    const text = decompress((await world.publicStore.get("segment/0.ndjson.zst"))!.bytes).toString("utf8");
    const lines = text.split("\n");
    expect(lines.pop()).toBe("");
    expect(lines).toHaveLength(BOUNDARY);
    expect(JSON.parse(lines[0]!)).toMatchObject({ kind: "delisting", index: 0 });
    expect(JSON.parse(lines.at(-1)!)).toMatchObject({ kind: "listing", index: BOUNDARY - 1 });

    const reader = await RecordReader.open(world.publicStore, head);
    const segment = TreeState.empty.append(lines.map((line) => leafHash(Buffer.from(line)))).state.root();
    const proof = await subtreeProof(0, BOUNDARY, head.size, reader.tiles.node);
    expect(verifySubtree(0, BOUNDARY, head.size, segment, proof, head.root)).toBe(true);
  });

  it("is one frame, so that Range and hashes speak of one byte string", async () => {
    const packed = Buffer.from((await world.publicStore.get("segment/0.ndjson.zst"))!.bytes);
    const magic = Buffer.from("28b52ffd", "hex");
    expect(packed.subarray(0, 4)).toEqual(magic);
    expect(packed.indexOf(magic, 4)).toBe(-1);
  });
});
