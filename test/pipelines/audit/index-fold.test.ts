import { describe, expect, test } from "vitest";
import { computeIndexList } from "../../../pipelines/audit/log-reading.ts";
import { endpointOf } from "../../../pipelines/published/endpoint.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { type IndexEntry, indexEntryOf } from "../../../pipelines/published/index-lines.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { fc } from "../../helpers/histories.ts";
import { shardsOf } from "../../helpers/market-index.ts";

type Draft = Record<string, unknown> & { kind: string };

/** Leaves in their places. */
function placed(drafts: readonly Draft[]): Leaf[] {
  const seqs = new Map<string, number>();
  return drafts.map((draft, index) => {
    const seq = seqs.get(draft.kind) ?? 0;
    seqs.set(draft.kind, seq + 1);
    return {
      ...draft,
      index,
      seq,
      at: `2026-11-21T00:00:${String(index % 60).padStart(2, "0")}.000Z`,
    } as unknown as Leaf;
  });
}

const listing = (n: number, description: string | null): Draft => ({
  ...{ kind: "listing", capability_id: `cap_${n}`, url: `https://s${n}.example/\u00e9"x`, method: "GET", tool: null },
  ...{ class: "any", description, seller_controlled: true, defects: [] },
});
const delisting = (n: number): Draft => ({ kind: "delisting", capability_id: `cap_${n}` });
const grade = (n: number, more: { headline: boolean; at: number; components: boolean }): Draft => ({
  ...{ kind: "grade", day: "2026-11-21", raw_band: "B", headline: more.headline, why: `B "so" \u2028 ${n}` },
  inputs: { positions: {}, digest: "", kin: "" },
  card: {
    ...{
      capability_id: `cap_${n}`,
      tier: "OUTCOME",
      band: "B",
      sample_count: n,
      window_start: "2026-10-01T00:00:00.000Z",
    },
    computed_at: `2026-11-21T0${more.at}:00:00.000Z`,
    components: more.components ? { honesty: { point: 1e-7 } } : null,
    signature: "x",
  },
});

const small = fc.integer({ min: 0, max: 5 });
const draft = fc.oneof(
  fc.tuple(small, fc.option(fc.string())).map(([n, text]) => listing(n, text)),
  small.map(delisting),
  fc
    .tuple(small, fc.record({ headline: fc.boolean(), at: fc.integer({ min: 0, max: 2 }), components: fc.boolean() }))
    .map(([n, more]) => grade(n, more)),
);

/** The index of some leaves as the publisher makes it. */
function published(leaves: readonly Leaf[]) {
  const fold = new PublishedFold();
  for (const leaf of leaves) fold.apply(leaf);
  const { bits, lines, shards } = shardsOf(fold);
  return {
    bits,
    lines,
    shards: shards.map(({ sha256, lines: of, text }) => ({ sha256, lines: of, bytes: text.length })),
  };
}

/** Listed endpoints of the leaves so far, as the auditor keeps them: one entry made by each leaf. */
class Entries {
  readonly #fold = new PublishedFold();
  readonly #entries = new Map<string, IndexEntry>();

  add(leaf: Leaf): void {
    this.#fold.apply(leaf);
    const cap = endpointOf(leaf)!;
    const entry = indexEntryOf(this.#fold.caps.get(cap)!);
    if (entry) this.#entries.set(cap, entry);
    else this.#entries.delete(cap);
  }

  get size(): number {
    return this.#fold.size;
  }

  get all(): IndexEntry[] {
    return [...this.#entries.values()];
  }
}

describe("the auditor's index", () => {
  test("is the publisher's at every size, whatever was listed, graded and delisted before", () => {
    fc.assert(
      fc.property(fc.array(draft, { maxLength: 40 }), fc.integer({ min: 1, max: 7 }), (drafts, step) => {
        const leaves = placed(drafts);
        const [entries, lines] = [new Entries(), new WeakMap()];
        for (const [i, leaf] of leaves.entries()) {
          entries.add(leaf);
          if (i % step > 0) continue;
          expect(computeIndexList(entries.all, lines)).toEqual(published(leaves.slice(0, i + 1)));
        }
      }),
      { numRuns: 200 },
    );
  });

  test("has more shards once it has more lines, and fewer again; one line changed is one shard", () => {
    const many = Array.from({ length: 1_100 }, (_, n) => listing(n, null));
    const leaves = placed([...many, listing(7, "changed"), ...many.slice(200).map((_, i) => delisting(i + 200))]);
    const [entries, lines] = [new Entries(), new WeakMap()];
    let before = new Set<string>();
    const builtAt = (size: number) => {
      while (entries.size < size) entries.add(leaves[entries.size]!);
      const index = computeIndexList(entries.all, lines);
      expect(index).toEqual(published(leaves.slice(0, size)));
      const changed = index.shards.filter(({ sha256 }) => !before.has(sha256));
      before = new Set(index.shards.map(({ sha256 }) => sha256));
      return [index.bits, changed.length];
    };
    expect(builtAt(1_100)).toEqual([3, 8]);
    expect(builtAt(1_101)).toEqual([3, 1]);
    expect(builtAt(leaves.length)).toEqual([0, 1]);
  });
});
