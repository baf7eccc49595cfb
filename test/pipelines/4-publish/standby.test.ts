import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../../infra/store/store.ts";
import { entriesPath } from "../../../infra/tree/path.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { headlineOf } from "../../../pipelines/published/caps.ts";
import { proveRecord, tokenOf } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { header, JWKS, line, listing, TRUST, World } from "./world.ts";

/** A publisher that waits reads on what the active one publishes, so that its turn begins where that one ended. */
let world: World;
let active: Publisher;
beforeEach(async () => {
  world = await World.open();
  active = world.publisher({ writer: "active" });
  await active.publishKeys(JWKS);
});
afterEach(() => world.close());

const NAMES = Array.from({ length: 600 }, (_, i) => `s-${i}`);
const NOW = "2026-11-20T01:00:00.000Z";

async function publishCards(): Promise<void> {
  await publishListings(
    active,
    NAMES.map((name) => listing(name)),
  );
  await active.takeRun({ header: header(NOW, 1), lines: NAMES.map((name) => line(name, NOW, ["B"])) });
}

/** Stores of a publisher whose reads of entry bundles, and writes of anything, are counted. */
function counting() {
  const counts = { bundles: 0, writes: 0 };
  const wrap = (store: Store): Store =>
    new Proxy(store, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          if (name === "get" && String(args[0]).startsWith("tile/entries/")) counts.bundles++;
          if (["create", "swap", "delete"].includes(String(name))) counts.writes++;
          return Reflect.apply(value, target, args) as unknown;
        };
      },
    });
  const stores = { privateStore: wrap(world.privateStore), publicStore: wrap(world.publicStore) };
  return { counts, waiting: world.publisher({ writer: "waiting", ...stores }) };
}

describe("a publisher that waits", () => {
  it("reads each leaf once while it waits, writes nothing, and has the last bundle to read when its turn comes", async () => {
    await publishCards();
    const { counts, waiting } = counting();
    await waiting.follow();
    const { size } = active.fold;
    expect(waiting.fold.size).toBe(size);
    expect(counts.bundles).toBe(Math.ceil(size / 256));
    await waiting.follow();
    expect(counts).toEqual({ bundles: Math.ceil(size / 256), writes: 0 });

    await publishListings(active, [listing("later")]);
    await waiting.start();
    // The bundle of the new leaf, and the same once more as the tail that goes on.
    expect(counts.bundles).toBe(Math.ceil(size / 256) + 2);
    expect(await publishListings(waiting, [listing("its-own"), listing("later")])).toMatchObject({ leaves: 1 });
    const expected = [...NAMES, "later", "its-own"].map((name) => tokenOf({ kind: "listing", ...listing(name) }));
    await proveRecord(world.publicStore, { trust: TRUST, expected, atRest: true });
  });

  it("holds the same cards, text by text, as the one that published them", async () => {
    await publishCards();
    const { waiting } = counting();
    await waiting.follow();
    expect([...waiting.fold.caps]).toEqual([...active.fold.caps]);
    const card = headlineOf(waiting.fold.caps.values().next().value!);
    expect(JSON.parse(card!.text)).toMatchObject({ band: "B" });
  });

  it("finishes what the active one left half done, also when it had followed up to there", async () => {
    await publishCards();
    const { waiting } = counting();
    await waiting.follow();
    let dead = false;
    const dying = world.publisher({
      writer: "dying",
      publicStore: new Proxy(world.publicStore, {
        get(target, name) {
          const value: unknown = Reflect.get(target, name);
          if (typeof value !== "function") return value;
          return async (...args: unknown[]) => {
            // Its generation is won by then, and its checkpoint is not signed.
            if (dead || (name === "swap" && args[0] === "checkpoint")) {
              dead = true;
              throw new Error("dead");
            }
            return Reflect.apply(value, target, args) as unknown;
          };
        },
      }),
    });
    await expect(publishListings(dying, [listing("half")])).rejects.toThrow("dead");
    await waiting.follow();
    expect(waiting.fold.size).toBe(active.fold.size);
    await waiting.start();
    expect(waiting.fold.size).toBe(active.fold.size + 1);
    const expected = [tokenOf({ kind: "listing", ...listing("half") })];
    await proveRecord(world.publicStore, { trust: TRUST, expected, atRest: true });
  });

  it("that meets a bundle of other bytes tells of it, and reads on once it is mended", async () => {
    await publishCards();
    const key = entriesPath(1);
    const sound = (await world.publicStore.get(key))!.bytes;
    const bad = Buffer.from(sound);
    bad[bad.length >> 1]! ^= 1;
    let served: Uint8Array = bad;
    const publicStore = new Proxy(world.publicStore, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        return async (...args: unknown[]) => {
          const found = (await Reflect.apply(value, target, args)) as { bytes: Uint8Array } | null;
          return name === "get" && args[0] === key && found ? { ...found, bytes: served } : found;
        };
      },
    });
    const waiting = world.publisher({ writer: "waiting", publicStore });
    await expect(waiting.follow()).rejects.toThrow(key);
    expect(waiting.fold.size).toBe(256);
    served = sound;
    await waiting.follow();
    expect([...waiting.fold.caps]).toEqual([...active.fold.caps]);
  });
});
