import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decompress } from "zstd-napi";
import { leafHash } from "../../../infra/tree/hash.ts";
import { Tampered, type TileReader, TreeState } from "../../../infra/tree/tiles.ts";
import { ZstdPacking } from "../../../infra/zstd.ts";
import { proveSegment } from "../../../pipelines/published/leaves.ts";
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

it("a segment that a source makes up is refused without being kept, however much it unpacks to", async () => {
  const packing = new ZstdPacking(true);
  const [lineBytes, perPiece] = [4_096, 256];
  const piece = Buffer.from(`${"x".repeat(lineBytes - 1)}\n`.repeat(perPiece));
  for (let i = 0; i < BOUNDARY; i += perPiece) await packing.add(piece);
  const { packed, bytes } = await packing.end();
  expect([packed.length < 100_000, bytes]).toEqual([true, BOUNDARY * lineBytes]);

  const tiles = { rootOfTile: async () => Buffer.alloc(32) } as unknown as TileReader;
  const usedBefore = process.memoryUsage().arrayBuffers;
  let mostUsed = 0;
  const timer = setInterval(() => {
    mostUsed = Math.max(mostUsed, process.memoryUsage().arrayBuffers - usedBefore);
  }, 1);
  await expect(proveSegment(packed, tiles, 0)).rejects.toThrow(Tampered);
  clearInterval(timer);
  expect(mostUsed).toBeLessThan(bytes / 4);
});
