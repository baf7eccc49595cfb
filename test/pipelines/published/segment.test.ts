import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decompress } from "zstd-napi";
import { leafHash } from "../../../infra/tree/hash.ts";
import { TreeState } from "../../../infra/tree/tiles.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { subtreeProof, verifySubtree } from "../../infra/tree/inclusion.ts";
import { BEFORE, shortOfASegment } from "../4-publish/short-of-a-segment.ts";
import { listing, TRUST, World } from "../4-publish/world.ts";

const BOUNDARY = 65_536;

let world: World;
beforeAll(async () => {
  world = await World.open();
  await shortOfASegment(world.privateStore, world.publicStore, world.clock.now());
});
afterAll(() => world.close());

describe("a log that crosses 65,536 leaves", () => {
  it("gets its segment with the generation that completes it, proven by one hash of level 2", async () => {
    const publisher = world.publisher();
    expect(await world.publicStore.list("segment/")).toEqual([]);
    await publishListings(
      publisher,
      Array.from({ length: 10 }, (_, i) => listing(`n-${i}`)),
    );
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
