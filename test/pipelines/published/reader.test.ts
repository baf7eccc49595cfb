import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Store } from "../../../infra/store/store.ts";
import { packBundle } from "../../../infra/tree/bundle.ts";
import { BadNote } from "../../../infra/tree/note.ts";
import { MissingObject, Tampered } from "../../../infra/tree/tiles.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { Faults } from "../4-publish/faults.ts";
import { JWKS, listing, SIGNERS, TRUST, World } from "../4-publish/world.ts";

let world: World;
/** Heads of the log at 1, 301 and 601 leaves. */
const heads: { size: number; root: Buffer }[] = [];
beforeAll(async () => {
  world = await World.open();
  const publisher = world.publisher();
  const note = async () => heads.push((await readCheckpoint(world.publicStore, TRUST))!);
  await publisher.publishKeys(JWKS);
  await note();
  for (const batch of ["x", "y"]) {
    await publishListings(
      publisher,
      Array.from({ length: 300 }, (_, i) => listing(`${batch}-${i}`)),
    );
    await note();
  }
});
afterAll(() => world.close());

/** The public store with some objects gone or changed. */
const changed = (objects: Record<string, Buffer | null>): Store => ({
  ...new Faults().wrap(world.publicStore, ""),
  get: async (key, options) => {
    const object = await world.publicStore.get(key, options);
    if (!(key in objects)) return object;
    const bytes = objects[key];
    return bytes ? { ...object!, bytes } : null;
  },
});

const read = async (store: Store, head: (typeof heads)[number], from?: number, to?: number) => {
  const leaves = [];
  for await (const leaf of (await RecordReader.open(store, head)).leaves(from, to)) leaves.push(leaf);
  return leaves;
};

describe("a reader", () => {
  it.each([
    [0, 601],
    [0, 1],
    [255, 257],
    [512, 600],
    [600, 601],
    [601, 601],
  ])("gives leaves [%d, %d) in order", async (from, to) => {
    const leaves = await read(world.publicStore, heads[2]!, from, to);
    expect(leaves.map((leaf) => leaf.index)).toEqual(Array.from({ length: to - from }, (_, i) => from + i));
    expect(leaves.every((leaf) => leaf.leaf.index === leaf.index)).toBe(true);
  });

  it("refuses a range that the checkpoint does not reach", async () => {
    await expect(read(world.publicStore, heads[1]!, 0, 302)).rejects.toThrow(RangeError);
  });

  it("reads an older checkpoint after its partial objects have gone, from the full ones", async () => {
    const store = changed({ "tile/0/001.p/45": null, "tile/entries/001.p/45": null });
    expect(await read(store, heads[1]!)).toHaveLength(301);
    const older = changed({ "tile/0/001.p/45": null, "tile/entries/001.p/45": null, "tile/entries/001": null });
    await expect(read(older, heads[1]!)).rejects.toThrow(MissingObject);
  });

  it("knows whether a checkpoint goes on from an older one", async () => {
    const reader = await RecordReader.open(world.publicStore, heads[2]!);
    for (const head of heads) expect(await reader.extends(head)).toBe(true);
    expect(await reader.extends({ size: 301, root: heads[2]!.root })).toBe(false);
    expect(await reader.extends({ size: 602, root: heads[2]!.root })).toBe(false);
    expect(await reader.extends({ size: 0, root: Buffer.alloc(32) })).toBe(true);
  });

  it("refuses an entry that was changed, left out or moved, and names the bundle", async () => {
    const entries = await (await RecordReader.open(world.publicStore, heads[2]!)).entries(1);
    const other = Buffer.from(entries[7]!.toString().replace("sells", "steals"));
    const swapped = [entries[1]!, entries[0]!, ...entries.slice(2)];
    for (const forged of [entries.with(7, other), swapped]) {
      const store = changed({ "tile/entries/001": await packBundle(forged) });
      await expect(read(store, heads[2]!)).rejects.toThrow(/^tile\/entries\/001 is not what the checkpoint commits to/);
    }
    const short = changed({ "tile/entries/001": await packBundle(entries.slice(1)) });
    await expect(read(short, heads[2]!)).rejects.toThrow("255 entries instead of 256");
  });

  it("refuses a changed edge of the tree, or a checkpoint under another key", async () => {
    await expect(read(changed({ "tile/1/000.p/2": Buffer.alloc(64) }), heads[2]!)).rejects.toThrow(Tampered);
    const witness = { ...TRUST.witness, publicKey: SIGNERS.cards.publicKey };
    await expect(readCheckpoint(world.publicStore, { ...TRUST, witness })).rejects.toThrow(BadNote);
  });
});

describe("the reader's files", () => {
  it("reach nothing that writes, and nothing private", () => {
    const root = new URL("../../..", import.meta.url).pathname;
    const reached = new Set<string>();
    const visit = (file: string): void => {
      if (reached.has(file)) return;
      reached.add(file);
      for (const [, path] of readFileSync(file, "utf8").matchAll(/^(?:import|export)[^"]*from "(\.[^"]+)"/gm)) {
        visit(join(dirname(file), path!));
      }
    };
    visit(join(root, "pipelines/published/reader.ts"));
    const own = [...reached]
      .map((file) => relative(root, file))
      .filter((file) => /^pipelines\/(?:4-publish|published)\//.test(file));
    expect(own.sort()).toEqual(["errors", "objects", "reader"].map((name) => `pipelines/published/${name}.ts`));
  });
});
