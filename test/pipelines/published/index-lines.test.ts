import { describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { canonicalText } from "../../../infra/canonical.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { writeIndex } from "../../../pipelines/4-publish/index-build.ts";
import { PublicConflict } from "../../../pipelines/4-publish/writes.ts";
import { headlineOf } from "../../../pipelines/published/caps.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { lineText, shardBits, shardOf } from "../../../pipelines/published/index-lines.ts";
import { shardKey } from "../../../pipelines/published/objects.ts";
import { IndexLine, type Leaf } from "../../../pipelines/record/leaf.ts";
import { indexLineOf, shardsOf } from "../../helpers/market-index.ts";
import { capOf, line, listing, SIGNERS, urlOf, World } from "../4-publish/world.ts";

const AT = "2026-11-21T04:00:00.000Z";

/** Leaves in their places. */
function fold(leaves: object[]): PublishedFold {
  const folded = new PublishedFold();
  for (const leaf of leaves) {
    const { kind } = leaf as Leaf;
    folded.apply({ ...leaf, index: folded.size, seq: folded.nextSeq.get(kind) ?? 0, at: AT } as Leaf);
  }
  return folded;
}

const listed = (name: string) => ({ kind: "listing", ...listing(name) });
const graded = (name: string, components: null | undefined, headline = true) => {
  const { card, raw_band } = line(name, AT, ["B"]).cards[0]!;
  const signed = signObject(SIGNERS.cards, { ...card, ...(components === null ? { components } : {}) });
  const inputs = { positions: {}, digest: "", kin: "" };
  return { kind: "grade", day: "2026-11-21", raw_band, headline, why: "why", inputs, card: signed };
};

describe("a line of the index", () => {
  it("is there for every listed endpoint, with the headline's card and its leaf", () => {
    const folded = fold([listed("a"), graded("a", undefined), graded("a", undefined, false), graded("b", undefined)]);
    const lines = [...folded.caps.values()].map(indexLineOf);
    expect(lines[1]).toBeNull();
    expect(IndexLine.parse(lines[0])).toMatchObject({
      url: urlOf("a"),
      capability_id: capOf("a"),
      band: "B",
      tier: "OUTCOME_VERIFIED",
      sample_count: 40,
      leaf: 1,
      why: "why",
    });
  });

  it("says unknown before the first card, and no tier for a card that stands on nothing", () => {
    const [a, b] = [...fold([listed("a"), listed("b"), graded("b", null)]).caps.values()].map(indexLineOf);
    const none = { band: "UNRATED", tier: null, sample_count: 0, card: null, leaf: null };
    expect(a).toMatchObject({ ...none, why: "UNRATED: 0 of 30 paid calls so far; unknown, not bad." });
    expect(b).toMatchObject({ tier: null, leaf: 2 });
  });

  it("has what the newest listing offers", () => {
    const offer = { network: "eip155:8453", asset: "0xa", price: "0.010000", pay_to: "0xb" };
    const [a] = [...fold([listed("a"), { ...listed("a"), offers: [offer] }]).caps.values()].map(indexLineOf);
    expect(a).toMatchObject({ offers: [offer] });
    const [b] = [...fold([listed("a")]).caps.values()].map(indexLineOf);
    expect(b).toMatchObject({ offers: [] });
  });

  it("goes with the listing", () => {
    const gone = fold([listed("a"), graded("a", undefined), { kind: "delisting", capability_id: capOf("a") }]);
    expect(indexLineOf(gone.caps.get(capOf("a"))!)).toBeNull();
  });
});

describe("the text of a line", () => {
  it("is the RFC 8785 text of the line itself, with a card and without", () => {
    const folded = fold([listed("a"), listed("b"), graded("b", null)]);
    for (const cap of folded.caps.values()) {
      const text = lineText({ listing: cap.listing!, headline: headlineOf(cap) });
      expect(text).toBe(canonicalText(indexLineOf(cap)!));
    }
  });
});

describe("shards", () => {
  it("that are written while the log goes on are those of the moment when they were begun", async () => {
    const world = await World.open();
    const names = Array.from({ length: 300 }, (_, i) => `n-${i}`);
    const folded = fold(names.map(listed));
    const { shards } = shardsOf(folded);
    const writing = writeIndex(world.publicStore, folded, SIGNERS.cards);
    folded.apply({ ...listed("later"), index: 300, seq: 300, at: AT } as Leaf);
    folded.apply({ ...listed("n-0"), description: "another", index: 301, seq: 301, at: AT } as Leaf);
    expect(await writing).toMatchObject({ kind: "index", key: "index/300.json", tree_size: 300 });
    const list = await world.publicStore.get("index/300.json");
    const written = JSON.parse(Buffer.from(list!.bytes).toString()) as { lines: number; shards: { sha256: string }[] };
    expect([written.lines, written.shards.map(({ sha256 }) => sha256)]).toEqual([300, shards.map((s) => s.sha256)]);
    await world.close();
  });

  it("that are there and are not what they are called stop the index", async () => {
    const world = await World.open();
    const folded = fold([listed("a")]);
    const [shard] = shardsOf(folded).shards;
    await world.publicStore.create(shardKey(shard!.sha256), compress(Buffer.from("something else")));
    await expect(writeIndex(world.publicStore, folded, SIGNERS.cards)).rejects.toThrow(PublicConflict);
    await world.close();
  });

  it.each([
    [0, 0],
    [256, 0],
    [257, 1],
    [512, 1],
    [10_000_000, 16],
  ])("of %d lines take %d bits", (lines, bits) => expect(shardBits(lines)).toBe(bits));

  it("hold every line once, in its url's shard, whatever the order of the log", () => {
    const names = Array.from({ length: 600 }, (_, i) => `n-${i}`);
    const forth = shardsOf(fold(names.map(listed)));
    const back = shardsOf(fold(names.toReversed().map(listed)));
    expect(back).toEqual(forth);
    expect(forth).toMatchObject({ bits: 2, lines: 600 });
    const urls = forth.shards.flatMap(({ text }, n) =>
      text
        .toString()
        .trimEnd()
        .split("\n")
        .map((json) => {
          const { url } = JSON.parse(json) as { url: string };
          expect(shardOf(url, 2)).toBe(n);
          return url;
        }),
    );
    expect(urls.sort()).toEqual(names.map(urlOf).sort());
  });

  it("of an empty index are one empty shard", () => {
    expect(shardsOf(new PublishedFold())).toMatchObject({ bits: 0, lines: 0, shards: [{ lines: 0 }] });
  });

  it("a leaf out of its place is no part of a fold", () => {
    const folded = fold([listed("a")]);
    expect(() => folded.apply({ ...listed("b"), index: 2, seq: 1, at: AT } as Leaf)).toThrow("not the next one (1/1)");
    expect(() => folded.apply({ ...listed("b"), index: 1, seq: 0, at: AT } as Leaf)).toThrow("not the next one (1/1)");
  });
});
