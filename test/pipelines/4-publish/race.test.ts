import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Clock, FixedClock } from "../../../infra/clock.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { ClockRefused, createChainTimeReader } from "../../../pipelines/4-publish/clocks.ts";
import { BadPrivateObject } from "../../../pipelines/4-publish/generation.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { Fork } from "../../../pipelines/4-publish/tree-head.ts";
import { PublicConflict } from "../../../pipelines/4-publish/writes.ts";
import { readCheckpoint } from "../../../pipelines/published/reader.ts";
import { proveRecord, tokenOf } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { Faults } from "./faults.ts";
import { JWKS, listing, ORIGIN, TRUST, World } from "./world.ts";

let world: World;
let publisher: Publisher;
beforeEach(async () => {
  world = await World.open();
  publisher = world.publisher();
  await publisher.publishKeys(JWKS);
});
afterEach(() => world.close());

const token = (name: string) => tokenOf({ kind: "listing", ...listing(name) });
const sizeNow = async () => (await readCheckpoint(world.publicStore, TRUST))?.size;

describe("two publishers at once", () => {
  it("win generations in turns, and nothing is lost or doubled", async () => {
    const writers = ["one", "two"].map((writer) => world.publisher({ writer }));
    const names: string[] = [];
    await Promise.all(
      writers.map(async (writer, w) => {
        for (let i = 0; i < 12; i++) {
          names.push(`own-${w}-${i}`);
          // Both also tell the same: whoever comes second has nothing to say.
          await publishListings(writer, [listing(`own-${w}-${i}`), listing(`both-${i}`)]);
        }
      }),
    );
    const expected = [...names, ...Array.from({ length: 12 }, (_, i) => `both-${i}`)].map(token);
    await proveRecord(world.publicStore, { trust: TRUST, expected, nothingElse: true, atRest: true });
    const won = await Promise.all(
      (await world.privateStore.list("generation/")).map(async ({ key }) => {
        const object = await world.privateStore.get(key);
        return (JSON.parse(Buffer.from(object!.bytes).toString()) as { writer: string }).writer;
      }),
    );
    expect(new Set(won.slice(1))).toEqual(new Set(["one", "two"]));
  });
});

/** A store whose next write of a key with this prefix waits until it is released. */
function sleeping(store: Store, prefix: string) {
  let release = () => {};
  let reached = () => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const asleep = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const wait = async (key: string) => {
    if (!key.startsWith(prefix)) return;
    reached();
    await gate;
  };
  const wrapped: Store = {
    ...new Faults().wrap(store, ""),
    create: async (key, bytes, meta) => wait(key).then(() => store.create(key, bytes, meta)),
    swap: async (key, bytes, expected, meta) => wait(key).then(() => store.swap(key, bytes, expected, meta)),
  };
  return { store: wrapped, release, asleep };
}

describe("a publisher that was paused", () => {
  it.each(["tile/", "checkpoint"])("before its %s never takes the checkpoint back", async (prefix) => {
    const slow = sleeping(world.publicStore, prefix);
    const paused = world.publisher({ publicStore: slow.store });
    await paused.start();
    const slept = publishListings(paused, [listing("slept")]);
    await slow.asleep;
    await publishListings(publisher, [listing("awake-1")]);
    await publishListings(publisher, [listing("awake-2")]);
    expect(await sizeNow()).toBe(4);
    slow.release();
    expect(await slept).toEqual({ leaves: 1, refused: [] });
    expect(await sizeNow()).toBe(4);
    await publishListings(paused, [listing("slept"), listing("after")]);
    const expected = ["slept", "awake-1", "awake-2", "after"].map(token);
    await proveRecord(world.publicStore, { trust: TRUST, expected, nothingElse: true, atRest: true });
  });

  it("does not freshen an old checkpoint", async () => {
    await publishListings(world.publisher(), [listing("a")]);
    world.clock.set("2026-11-21T05:00:00.000Z");
    await publisher.refreshCheckpoint();
    expect(await sizeNow()).toBe(2);
    expect((await publishListings(publisher, [listing("a"), listing("b")])).leaves).toBe(1);
  });
});

describe("a generation that cannot be known to be ours", () => {
  it("because the store failed while another won it: the next one is taken, and nothing is lost", async () => {
    const rival = world.publisher();
    let failures = 0;
    const privateStore: Store = {
      ...new Faults().wrap(world.privateStore, ""),
      create: async (key, bytes, meta) => {
        if (!key.startsWith("generation/") || failures++ > 0) return world.privateStore.create(key, bytes, meta);
        await publishListings(rival, [listing("rival")]);
        throw new Error("connection lost");
      },
    };
    const { leaves } = await publishListings(world.publisher({ privateStore }), [listing("mine")]);
    expect(leaves).toBe(1);
    const expected = [token("rival"), token("mine")];
    await proveRecord(world.publicStore, { trust: TRUST, expected, nothingElse: true, atRest: true });
  });
});

describe("stores that cannot be right", () => {
  it("two roots for one size: stop and say so", async () => {
    const root = Buffer.alloc(32, 9);
    const forged = signCheckpoint({ origin: ORIGIN, size: 2, root }, TRUST.log, TRUST.witness, world.clock.now());
    await publishListings(publisher, [listing("a")]);
    const { etag } = (await world.publicStore.head("checkpoint"))!;
    await world.publicStore.swap("checkpoint", forged, etag);
    await expect(world.publisher().start()).rejects.toThrow(Fork);
    await expect(publisher.refreshCheckpoint()).rejects.toMatchObject({ name: "Fork", code: "fork" });
  });

  it("a public log without generations, or ahead of them: the private store is not its own", async () => {
    const other = await World.open();
    const stranger = other.publisher({ publicStore: world.publicStore });
    await expect(stranger.publishKeys(JWKS)).rejects.toThrow(BadPrivateObject);
    await other.publisher().publishKeys(JWKS);
    await publishListings(publisher, [listing("a")]);
    await expect(other.publisher({ publicStore: world.publicStore }).start()).rejects.toThrow("stays ahead");
    await other.close();
  });

  it("a tile with other bytes: the log stops, its checkpoint as it was", async () => {
    await world.publicStore.create("tile/0/000.p/2", Buffer.alloc(64, 1));
    await expect(publishListings(publisher, [listing("a")])).rejects.toThrow(PublicConflict);
    expect(await sizeNow()).toBe(1);
  });

  it.each(["gone", "another's"])("staging that is %s", async (how) => {
    const dead = new Faults({ write: 1, outcome: "answer lost", dies: true });
    const dying = world.publisher({
      privateStore: dead.wrap(world.privateStore, ""),
      publicStore: dead.wrap(world.publicStore, ""),
    });
    await expect(publishListings(dying, [listing("a")])).rejects.toThrow();
    const staging = (await world.privateStore.list("staging/")).map(({ key }) => key);
    const newest = dead.writes[0]!.trim();
    expect(staging).toContain(newest);
    const others = await world.privateStore.get(staging.find((key) => key !== newest)!);
    await world.privateStore.delete(newest);
    if (how !== "gone") await world.privateStore.create(newest, others!.bytes);
    await expect(world.publisher().start()).rejects.toThrow(BadPrivateObject);
    expect(await sizeNow()).toBe(1);
  });
});

describe("clocks", () => {
  const AT = "2026-11-21T04:00:00.000Z";
  const real = (at: string): Clock => {
    const clock = new FixedClock(at);
    return {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      sleep: (ms) => clock.sleep(ms),
      simulated: false,
      jumps: false,
    };
  };
  const publishAt = (clock: Clock, chain?: { newest: string; fixedBlockTime: boolean } | null) => {
    const newest = chain && { newest: new Date(chain.newest), fixedBlockTime: chain.fixedBlockTime };
    const chainTime = chain === undefined ? undefined : async () => newest ?? null;
    return publishListings(world.publisher({ clock, chainTime }), [listing("a")]);
  };

  it("behind the last generation: refused, nothing written", async () => {
    await expect(publishAt(real("2026-11-21T03:59:59.999Z"))).rejects.toThrow(ClockRefused);
    expect(await sizeNow()).toBe(1);
    expect(await publishAt(real(AT))).toMatchObject({ leaves: 1 });
  });

  it("simulated and behind: a day that is lived again keeps the last time, which never goes back", async () => {
    await publishAt(new FixedClock("2026-11-20T00:00:00.000Z"));
    const { leaves } = await proveRecord(world.publicStore, { trust: TRUST, atRest: true });
    expect(leaves.at(-1)?.at).toBe(AT);
  });

  it.each<[string, string, boolean, boolean]>([
    ["30 s ahead", "2026-11-21T04:00:30.000Z", false, true],
    ["31 s ahead", "2026-11-21T04:00:31.000Z", false, false],
    ["30 s behind, blocks at a fixed pace", "2026-11-21T03:59:30.000Z", true, true],
    ["31 s behind, blocks at a fixed pace", "2026-11-21T03:59:29.000Z", true, false],
    ["an hour behind, blocks as they come", "2026-11-21T03:00:00.000Z", false, true],
  ])("the chain's newest block %s", async (_, newest, fixedBlockTime, fine) => {
    const publication = publishAt(real(AT), { newest, fixedBlockTime });
    if (fine) expect(await publication).toMatchObject({ leaves: 1 });
    else await expect(publication).rejects.toThrow(ClockRefused);
    expect(await sizeNow()).toBe(fine ? 2 : 1);
  });

  it.each([
    ["eip155:8453", true],
    ["eip155:4217", true],
    // Arbitrum and Avalanche make a block when there is a transaction, and Ethereum leaves slots empty.
    ["eip155:42161", false],
    ["eip155:43113", false],
    ["eip155:1", false],
  ])("the pace of %s is known: %s", async (network, fixedBlockTime) => {
    const rail = { network, head: async () => ({ number: 1, time: 1_800_000_000 }) };
    const read = createChainTimeReader(
      rail as unknown as Parameters<typeof createChainTimeReader>[0],
      createLogger("silent"),
    );
    expect(await read()).toEqual({ newest: new Date(1_800_000_000_000), fixedBlockTime });
  });

  it("a chain that cannot be asked, or a simulated clock: not compared", async () => {
    expect(await publishAt(real(AT), null)).toMatchObject({ leaves: 1 });
    const simulated = world.publisher({ chainTime: () => Promise.reject(new Error("asked")) });
    expect(await publishListings(simulated, [listing("b")])).toMatchObject({ leaves: 1 });
  });
});
