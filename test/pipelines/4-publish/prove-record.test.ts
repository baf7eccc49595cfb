import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { packBundle, unpackBundle } from "../../../infra/tree/bundle.ts";
import { proveRecord, RecordBroken } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { cardToken, header, JWKS, line, listing, SIGNERS, TRUST, World } from "./world.ts";

const DAY = "2026-11-21T04:00:00.000Z";
let world: World;
beforeEach(async () => {
  world = await World.open();
  const publisher = world.publisher();
  await publisher.publishKeys(JWKS);
  await publishListings(publisher, [listing("a")]);
  await publisher.takeRun({ header: header(DAY, 5), lines: [line("a", DAY, ["B"])] });
  await publisher.buildIndex();
  await publishListings(publisher, [listing("b")]);
});
afterEach(() => world.close());

type Damage = (world: World) => Promise<void>;

const gone =
  (key: string): Damage =>
  ({ publicStore }) =>
    publicStore.delete(key);

const changed =
  (key: string, change: (bytes: Buffer) => Buffer | Promise<Buffer>): Damage =>
  async ({ publicStore }) => {
    const object = (await publicStore.get(key))!;
    await publicStore.swap(key, await change(Buffer.from(object.bytes)), object.etag);
  };

const flipped = (bytes: Buffer): Buffer => {
  const other = Buffer.from(bytes);
  other[other.length - 1]! ^= 1;
  return other;
};

/** Texts in entries of the newest bundle replaced; the tiles stay as they were. */
const entry = (from: string, to: string): Damage =>
  changed("tile/entries/000.p/5", async (bytes) =>
    packBundle((await unpackBundle(bytes, 5)).map((text) => Buffer.from(text.toString().replace(from, to)))),
  );

/** What the prover says of a record, or nothing when it is whole. */
async function problems(options: { expected?: string[]; nothingElse?: boolean } = {}): Promise<string> {
  try {
    await proveRecord(world.publicStore, { trust: TRUST, atRest: true, ...options });
    return "";
  } catch (error) {
    expect(error).toBeInstanceOf(RecordBroken);
    return (error as Error).message;
  }
}

describe("the helper that proves a record", () => {
  it("finds nothing wrong with a whole one", async () => expect(await problems()).toBe(""));

  it.each<[string, Damage, string]>([
    ["a tile gone", gone("tile/0/000.p/5"), "no tile 0 of width 5 on level 0"],
    ["a bundle gone", gone("tile/entries/000.p/5"), "no bundle of entries 0 to 4"],
    ["an old tile changed", changed("tile/0/000.p/2", flipped), "tile/0/000.p/2 is not what its entries hash to"],
    ["an entry changed", entry('"seq":0', '"seq":7'), "differs from the one in another bundle"],
    [
      "a checkpoint under another key",
      changed("checkpoint", (b) => Buffer.from(b.toString().replace("\n5\n", "\n4\n"))),
      "does not hold",
    ],
    ["keys changed", changed("keys/0.json", flipped), "keys/0.json is not what leaf 0 names"],
    ["the index list gone", gone("index/3.json"), "index/3.json is missing"],
    [
      "an old hint",
      changed("hint/index.json", () => Buffer.from('{"key":"index/3.json","leaf":3}')),
      "hint/index.json names no leaf of that key",
    ],
    [
      "a private key",
      async (w) => void (await w.publicStore.create("runs/1", Buffer.of(1))),
      "runs/1 is not a public key",
    ],
    [
      "a tile beyond",
      async (w) => void (await w.publicStore.create("tile/0/000.p/9", Buffer.alloc(288))),
      "beyond the checkpoint of 5",
    ],
  ])("names %s", async (_, damage, says) => {
    await damage(world);
    expect(await problems()).toContain(says);
  });

  it("names what was lost, and what nobody put in", async () => {
    const said = await problems({ expected: [cardToken("a", DAY), "schedule 2026-01-01"], nothingElse: true });
    expect(said).toContain("lost: schedule 2026-01-01");
    expect(said).toContain("nobody put in: listing");
    expect(said).not.toContain(cardToken("a", DAY));
  });

  it("names leaves that our own rules forbid, though they stand under the root", async () => {
    // A publisher without the rules: the same signers, wrong leaves.
    const bad = world.publisher({ signers: { ...SIGNERS, cards: SIGNERS.answers } });
    await bad.takeRun({ header: header("2026-11-21T04:00:00.001Z", 6), lines: [line("c", DAY, ["C"])] });
    expect(await problems()).toContain("signature of its card: wrong_purpose");
  });
});
