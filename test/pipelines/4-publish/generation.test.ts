import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { canonicalBytes } from "../../../infra/canonical.ts";
import {
  BadPrivateObject,
  type Generation,
  generationBytes,
  generationKey,
  readGeneration,
  winGeneration,
} from "../../../pipelines/4-publish/generation.ts";
import { Faults } from "./faults.ts";
import { JWKS, NEXT_CARDS, rotated, SIGNERS, World } from "./world.ts";

let world: World;
beforeEach(async () => {
  world = await World.open();
});
afterEach(() => world.close());

const GENERATION: Generation = {
  v: 1,
  n: 0,
  old: { size: 0, root: "0".repeat(64) },
  new: { size: 5, root: "1".repeat(64) },
  staging: `staging/${"a".repeat(64)}`,
  run: 7,
  log: "log-1",
  positions: { "observations.free": { "0": 12, "1": 9 } },
  writer: "one",
  at: "2026-11-21T04:00:00.000Z",
};

describe("a generation", () => {
  it("comes back as it was won, and so does one from before there were digests", async () => {
    expect(await winGeneration(world.privateStore, GENERATION)).toBe(true);
    expect(await readGeneration(world.privateStore, 0)).toEqual(GENERATION);
    const old = { ...GENERATION, n: 1 };
    await world.privateStore.create(generationKey(1), canonicalBytes(old));
    expect(await readGeneration(world.privateStore, 1)).toEqual(old);
  });

  it("with any bit flipped is none: nothing else vouches for its positions", async () => {
    const bytes = generationBytes(GENERATION);
    let read: Buffer = bytes;
    const object = { key: generationKey(0), size: bytes.length, etag: "e", modifiedAt: new Date(0) };
    const store = { ...new Faults().wrap(world.privateStore, ""), get: async () => ({ ...object, bytes: read }) };
    expect(await readGeneration(store, 0)).toEqual(GENERATION);
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      read = Buffer.from(bytes);
      read[bit >> 3]! ^= 1 << (bit & 7);
      await expect(readGeneration(store, 0), `bit ${bit}`).rejects.toThrow(BadPrivateObject);
    }
  });
});

describe("a keyring of a process that was paused during a rotation", () => {
  const AT = "2026-11-21T04:00:00.000Z";
  const LATER = "2026-11-21T05:00:00.000Z";

  it.each([
    ["does not know the new key", JWKS],
    ["lets the old key retire later", rotated(LATER)],
  ])("%s: it takes nothing back", async (_, older) => {
    const publisher = world.publisher();
    await publisher.publishKeys(JWKS);
    await publisher.publishKeys(rotated(AT));
    await expect(world.publisher().publishKeys(older)).rejects.toThrow("is newer than this keyring");
    expect((await world.publisher().current()).keys?.n).toBe(1);
    // An end may be brought forward: that is what a lost key needs.
    const signers = { ...SIGNERS, cards: NEXT_CARDS };
    await world.publisher({ signers }).publishKeys(rotated("2026-11-21T03:00:00.000Z"));
    expect((await world.publisher().current()).keys?.n).toBe(2);
  });
});
