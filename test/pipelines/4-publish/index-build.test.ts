import { describe, expect, it } from "vitest";
import type { Store } from "../../../infra/store/store.ts";
import { TextBuffer, writeIndex } from "../../../pipelines/4-publish/index-build.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { fc } from "../../helpers/histories.ts";
import { shardsOf } from "../../helpers/market-index.ts";
import { line, listing, SIGNERS, urlOf } from "./world.ts";

const AT = "2026-11-21T04:00:00.000Z";

function apply(fold: PublishedFold, leaf: object): void {
  const { kind } = leaf as Leaf;
  fold.apply({ ...leaf, index: fold.size, seq: fold.nextSeq.get(kind) ?? 0, at: AT } as Leaf);
}
const listed = (i: number, more = {}) => ({ kind: "listing", ...listing(`n-${i}`, more) });
const delisted = (i: number) => ({ kind: "delisting", capability_id: listing(`n-${i}`).capability_id });
const graded = (i: number, leaf: number) => {
  const { card, raw_band } = line(`n-${i}`, AT, ["B"]).cards[0]!;
  const inputs = { positions: {}, digest: "", kin: "" };
  // Unlike any other, as a signature would be.
  const signed = { ...card, signing_key_id: "k", canonicalization: "RFC8785", signature: `s-${leaf}` };
  return { kind: "grade", day: "2026-11-21", raw_band, headline: true, why: `why ${leaf}`, inputs, card: signed };
};
function foldOf(count: number, more: (i: number) => object = () => ({})): PublishedFold {
  const fold = new PublishedFold();
  for (let i = 0; i < count; i++) apply(fold, listed(i, more(i)));
  return fold;
}

/** Objects in memory; `creating` is told of each that is created, before it is. */
class Kept {
  readonly objects = new Map<string, Uint8Array>();
  underWay = 0;

  constructor(private readonly creating: (key: string) => void = () => undefined) {}

  async get(key: string) {
    const bytes = this.objects.get(key);
    return bytes ? { key, bytes } : null;
  }

  async create(key: string, bytes: Uint8Array) {
    this.underWay++;
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.underWay--;
    this.creating(key);
    this.objects.set(key, Uint8Array.from(bytes));
    return { result: "created" };
  }

  get store(): Store {
    return this as unknown as Store;
  }
}

const namesIn = (kept: Kept, size: number): string[] => {
  const list = JSON.parse(Buffer.from(kept.objects.get(`index/${size}.json`)!).toString()) as {
    shards: { sha256: string; lines: number; bytes: number }[];
  };
  return list.shards.map(({ sha256, lines, bytes }) => `${sha256} ${lines} ${bytes}`);
};
const namesOf = (fold: PublishedFold): string[] =>
  shardsOf(fold).shards.map(({ sha256, lines, text }) => `${sha256} ${lines} ${text.length}`);

describe("others have their turn", () => {
  /** Two walks over the endpoints by 1,024, each shard's lines by 256 and its packing, and the table's rows by 32. */
  const pieces = (endpoints: number, shards: readonly number[]): number =>
    2 * Math.ceil(endpoints / 1_024) +
    shards.reduce((sum, lines) => sum + Math.ceil(lines / 256) + 1, 0) +
    Math.ceil(endpoints / 32);

  it.each([
    ["many endpoints", foldOf(2_500)],
    ["many tools of one server, which all lie in one shard", foldOf(1_500, () => ({ url: urlOf("one") }))],
  ])("before each piece of work: %s", async (_, fold) => {
    let asked = 0;
    const giveTurn = async () => void asked++;
    await writeIndex(new Kept().store, fold, SIGNERS.cards, giveTurn);
    const { lines, shards } = shardsOf(fold);
    expect(asked).toBe(
      pieces(
        lines,
        shards.map((shard) => shard.lines),
      ),
    );
  });

  it("and of all shards that are on their way only one goes on in a turn of the loop", async () => {
    const fold = foldOf(2_500);
    let turns = 0;
    let writing = true;
    const turn = () => {
      turns++;
      if (writing) setImmediate(turn);
    };
    turn();
    // A shard is asked for in the turn in which its lines were printed.
    const printed: number[] = [];
    const kept = new Kept();
    const get = kept.get.bind(kept);
    kept.get = (key) => {
      printed.push(turns);
      return get(key);
    };
    await writeIndex(kept.store, fold, SIGNERS.cards);
    writing = false;
    expect(printed).toHaveLength(shardsOf(fold).shards.length);
    expect(new Set(printed).size).toBe(printed.length);
  });
});

describe("an index that is written while the log goes on", () => {
  it("is that of the moment when it was begun, whatever is published at any turn", async () => {
    const step = fc.tuple(fc.constantFrom("listed", "delisted", "graded"), fc.nat({ max: 420 }));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(step, { maxLength: 4 }), { maxLength: 12 }), async (history) => {
        const fold = foldOf(400);
        for (let i = 0; i < 400; i += 3) apply(fold, graded(i, fold.size));
        for (let i = 0; i < 400; i += 7) apply(fold, delisted(i));
        const { size } = fold;
        const before = namesOf(fold);
        let turn = 0;
        const kept = new Kept();
        await writeIndex(kept.store, fold, SIGNERS.cards, async () => {
          for (const [kind, i] of history[turn++] ?? []) {
            if (kind === "listed") apply(fold, listed(i, { description: `at ${fold.size}` }));
            else apply(fold, kind === "delisted" ? delisted(i) : graded(i, fold.size));
          }
        });
        expect(namesIn(kept, size)).toEqual(before);
        // The one after it is of its own moment.
        apply(fold, listed(500));
        const after = new Kept();
        await writeIndex(after.store, fold, SIGNERS.cards, async () => undefined);
        expect(namesIn(after, fold.size)).toEqual(namesOf(fold));
      }),
      { numRuns: 15 },
    );
  });

  it("that cannot be written leaves nothing under way, and is written by the next try", async () => {
    const fold = foldOf(6_000);
    let created = 0;
    const kept = new Kept(() => {
      if (++created === 5) throw new Error("the disk is full");
    });
    await expect(writeIndex(kept.store, fold, SIGNERS.cards)).rejects.toThrow("the disk is full");
    expect(kept.underWay).toBe(0);
    const shards = shardsOf(fold).shards.length;
    expect(created).toBeLessThan(shards);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(kept.objects.has(`index/${fold.size}.json`)).toBe(false);
    await writeIndex(kept.store, fold, SIGNERS.cards);
    expect(namesIn(kept, fold.size)).toEqual(namesOf(fold));
  });
});

describe("a page", () => {
  it("holds what was added since it was cleared, also past what it began with", () => {
    const page = new TextBuffer();
    for (const text of ["ä", "€".repeat(400_000), "\u{1f600}x".repeat(300_000), "end"]) {
      page.add(text);
      page.add("\n");
      expect(page.bytes.equals(Buffer.from(`${text}\n`))).toBe(true);
      page.clear();
      expect(page.bytes).toHaveLength(0);
    }
    for (const text of ["ä".repeat(300_000), "b".repeat(900_000)]) page.add(text);
    expect(page.bytes.equals(Buffer.from("ä".repeat(300_000) + "b".repeat(900_000)))).toBe(true);
  });
});
