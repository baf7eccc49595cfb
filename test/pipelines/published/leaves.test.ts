import { beforeAll, describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { packBundle } from "../../../infra/tree/bundle.ts";
import { entriesPath, tilePath } from "../../../infra/tree/path.ts";
import { Tampered } from "../../../infra/tree/tiles.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { readProvenLeaves } from "../../../pipelines/published/leaves.ts";
import { segmentKey } from "../../../pipelines/published/objects.ts";
import type { Source } from "../../../pipelines/published/source.ts";

/** A log one segment and three leaves long. */
const SIZE = 65_539;
const entries = Array.from({ length: SIZE }, (_, index) =>
  Buffer.from(
    `{"at":"2026-11-21T00:00:00.000Z","capability_id":"c","index":${index},"kind":"delisting","seq":${index}}`,
  ),
);
const lines = entries.slice(0, 65_536).map((entry) => `${entry.toString()}\n`);
const objects = new Map<string, Buffer>();
let head: { size: number; root: Buffer };

beforeAll(async () => {
  const { live, tiles, bundles } = growTree(EMPTY_TREE, entries);
  head = { size: SIZE, root: live.tree.root() };
  for (const { level, n, width, bytes } of tiles) objects.set(tilePath(level, n, width), Buffer.from(bytes));
  for (const { n, entries: of } of bundles) objects.set(entriesPath(n, of.length), await packBundle(of));
});

async function read(segment: Buffer | null): Promise<{ leaves: number; asked: string[] }> {
  const asked: string[] = [];
  const source: Source = {
    name: "memory",
    get: async (key) => {
      asked.push(key);
      return key === segmentKey(0) ? segment : (objects.get(key) ?? null);
    },
    close: async () => undefined,
  };
  let leaves = 0;
  for await (const { index, leaf } of readProvenLeaves(source, head)) {
    if (index !== leaves || leaf.index !== index) throw new Error(`leaf ${leaf.index} at ${index}, not ${leaves}`);
    leaves++;
  }
  return { leaves, asked: asked.filter((key) => key.startsWith("tile/entries/")) };
}

describe("leaves are read", () => {
  it("from the segment and then the last bundle", async () => {
    expect(await read(compress(Buffer.from(lines.join(""))))).toEqual({
      leaves: SIZE,
      asked: [entriesPath(256, 3)],
    });
  });

  it("from the bundles where the segment is not there", async () => {
    const { leaves, asked } = await read(null);
    expect([leaves, asked.length]).toEqual([SIZE, 257]);
  });

  it.each<[string, () => Buffer]>([
    ["with a leaf changed", () => compress(Buffer.from(lines.join("").replace('"seq":7}', '"seq":8}')))],
    ["with a leaf less", () => compress(Buffer.from(lines.slice(1).join("")))],
    ["with more behind its last line", () => compress(Buffer.from(`${lines.join("")}x`))],
    ["that is no zstd", () => Buffer.from("junk")],
  ])("never from a segment %s", async (_, segment) => {
    await expect(read(segment())).rejects.toThrow(Tampered);
  });
});
