import { expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { comparedHash } from "../../../pipelines/3-grade/changed.ts";
import { holdOf } from "../../../pipelines/4-publish/letters.ts";
import { RecordGatherer } from "../../../pipelines/audit/gather.ts";
import { type PublishedCap, headlineOf as publishedHeadlineOf } from "../../../pipelines/published/caps.ts";
import { type RawLetter, toListingFacts } from "../../../pipelines/published/endpoint.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { Snapshot } from "../../../pipelines/published/reader.ts";
import type { GradeLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { BANDS } from "../../../pipelines/record/vocabulary.ts";
import { headlineOf, leafOf, MAX_LETTERS } from "../../../serving/tables/entry.ts";
import { Follower } from "../../../serving/tables/follower.ts";
import { fc } from "../../helpers/histories.ts";
import { cardOf, listingDraft } from "../../helpers/public-record.ts";
import { ManualClock } from "../../helpers/serving.ts";

const SPECS = [0, 1].map((n) => ({ url: `https://s${n}.example/x` }));
type Draft = Record<string, unknown> & { kind: string };

/** What a draft needs to know: the endpoint, and how the leaf differs from others of its kind. */
interface Step {
  of: number;
  what: "listing" | "delisting" | "grade" | "correction" | "reinstated" | "dispute" | "keys";
  /** Days and hours that went by since the grade before. */
  days: number;
  hours: number;
  band: (typeof BANDS)[number];
  headline: boolean;
}

const step: fc.Arbitrary<Step> = fc.record({
  of: fc.nat(SPECS.length - 1),
  what: fc.oneof(
    { weight: 3, arbitrary: fc.constant("grade" as const) },
    { weight: 2, arbitrary: fc.constantFrom("listing", "delisting", "correction", "reinstated", "dispute", "keys") },
  ),
  days: fc.oneof(fc.constant(0), fc.nat(8)),
  hours: fc.nat(1),
  band: fc.constantFrom(...BANDS),
  headline: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, fc.constant(false)),
});

function draftOf({ of, what, band, headline }: Step, n: number, at: Date): Draft {
  const spec = SPECS[of]!;
  const { capability_id } = cardOf(spec);
  const [day, computed_at] = [at.toISOString().slice(0, 10), at.toISOString()];
  switch (what) {
    case "listing":
      return listingDraft({ ...spec, description: `listed ${n}` });
    case "grade":
      return {
        ...{ kind: "grade", day, raw_band: band, headline, why: `${band}.` },
        inputs: { positions: { "observations.free": n }, digest: "", kin: "" },
        card: { ...cardOf(spec, { band, computed_at }), signature: "x" },
      };
    case "keys":
      return { kind: "keys", n, key: `keys/${n}.json`, sha256: "", bytes: 0 };
    case "delisting":
      return { kind: "delisting", capability_id };
    default:
      return { kind: what, capability_id, body: { id: `c${n}`, correction: `c${n - 1}`, record_id: null, says: "" } };
  }
}

function leavesOf(steps: readonly Step[]): { leaf: Leaf; bytes: Buffer }[] {
  const seqs = new Map<string, number>();
  let at = Date.parse("2026-10-01T00:00:00.000Z");
  return steps.map((one, index) => {
    if (one.what === "grade") at += (one.days * 24 + one.hours) * 3_600_000;
    const draft = draftOf(one, index, new Date(at));
    const seq = seqs.get(draft.kind) ?? 0;
    seqs.set(draft.kind, seq + 1);
    const leaf = { ...draft, index, seq, at: new Date(at).toISOString() } as unknown as Leaf;
    return { leaf, bytes: Buffer.from(canonicalText(leaf)) };
  });
}

/** One endpoint, looked up in all of its leaves at once. */
function modelOf(cap: string, leaves: readonly Leaf[]) {
  const own = leaves.filter((leaf) => leaf.kind !== "grade" && "capability_id" in leaf && leaf.capability_id === cap);
  const grades = leaves.filter((leaf): leaf is GradeLeaf => leaf.kind === "grade" && leaf.card.capability_id === cap);
  const listing = own.findLast((leaf) => leaf.kind === "listing");
  const moment = grades.at(-1)?.card.computed_at;
  const cards = grades.filter(({ index }) => {
    const upToLast = grades.filter((one) => one.index >= index);
    return (
      upToLast.every(({ card }) => card.computed_at === moment) && upToLast.length === grades.at(-1)!.index - index + 1
    );
  });
  const letters = grades
    .filter(({ headline }) => headline)
    .map(({ index, day, raw_band, card }): RawLetter => {
      const { window_start: windowStart, computed_at: computedAt } = card;
      return { leaf: index, day, band: raw_band, windowStart: windowStart!, computedAt: computedAt! };
    });
  const said = own.flatMap((leaf) =>
    leaf.kind === "correction" || leaf.kind === "dispute" || leaf.kind === "reinstated"
      ? [{ leaf: leaf.index, kind: leaf.kind, position: null, body: leaf.body }]
      : [],
  );
  return {
    listing: listing ? toListingFacts(listing) : null,
    listed: own.findLast(({ kind }) => kind === "listing" || kind === "delisting")?.kind === "listing",
    ...{ cards, letters, said },
  };
}

type Model = ReturnType<typeof modelOf>;

/** What the three folds have in common. */
const common = ({ listing, listed, cards, said }: Model) => {
  return {
    listing,
    listed,
    cards: cards.map(({ index }) => index),
    computedAt: cards[0]?.card.computed_at ?? "",
    said,
  };
};

/** Leaves that are published so far, as a follower reads them. */
class Published {
  size = 0;

  constructor(private readonly all: readonly { leaf: Leaf; bytes: Buffer }[]) {}

  async newest(): Promise<Snapshot> {
    const { all } = this;
    async function* leaves(from = 0, to = all.length) {
      yield* all.slice(from, to);
    }
    return { head: { size: this.size }, reader: { leaves } } as unknown as Snapshot;
  }
}

const quiet = { logger: createLogger("silent"), metrics: createMetrics() };

test("serving, the publisher and the auditor read one state of each endpoint out of the leaves, at every size", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 60, size: "max" }),
      fc.integer({ min: 1, max: 5 }),
      async (steps, looksEvery) => {
        const all = leavesOf(steps);
        const leaves = all.map(({ leaf }) => leaf);
        const tree = new Published(all);
        const store = { get: async () => null };
        const follower = new Follower({ ...quiet, tree, store, origin: "o", clock: new ManualClock() });
        const fold = new PublishedFold();
        const source = { name: "none", get: async () => null, close: async () => undefined };
        const gathering = new RecordGatherer(source, "all", all.length, false);
        for (const { leaf, bytes } of all) {
          fold.apply(leaf, bytes);
          await gathering.add(leaf);
          tree.size = fold.size;
          if (fold.size % looksEvery > 0) continue;
          await follower.refresh();
          for (const spec of SPECS) {
            const { capability_id: cap } = cardOf(spec);
            const model = modelOf(cap, leaves.slice(0, fold.size));
            const entry = follower.view.entry(cap);
            const published = fold.caps.get(cap);
            const groups = gathering.finish().groups.get(cap) ?? [];
            expect(entry === undefined).toBe(published === undefined);
            if (!entry || !published) {
              expect(common(model)).toEqual({ listing: null, listed: false, cards: [], computedAt: "", said: [] });
              continue;
            }
            for (const one of [entry, published]) {
              const { listing, listed, computedAt, cards, corrections: said } = one;
              const numbers = cards.map((card) => card.leaf);
              expect({ listing, listed, computedAt, cards: numbers, said }).toEqual(common(model));
            }
            expect(entry.cards.map(leafOf)).toEqual(model.cards);
            expect(headlineOf(entry)?.leaf ?? null).toBe(model.cards.find(({ headline }) => headline)?.index ?? null);
            expect(published.cards.map(({ compared }) => compared)).toEqual(model.cards.map(comparedHash));
            const shown = model.cards.find(({ headline }) => headline);
            expect(publishedHeadlineOf(published)?.text).toBe(shown && canonicalText(shown.card));
            expect(entry.letters.map(({ at, raw }) => [at, raw])).toEqual(
              model.letters.slice(-MAX_LETTERS).map(({ computedAt, band }) => [computedAt, band]),
            );
            expect(groups.at(-1)?.leaves.map((leaf) => leaf.unpack()) ?? []).toEqual(model.cards);
            const earlier = modelOf(cap, leaves.slice(0, model.cards[0]?.index ?? 0));
            const before = groups.at(-1)?.before;
            if (before) expect(before.corrections).toEqual(earlier.said);
            // The days of letters that are kept hold a letter as the whole history does.
            const today = addDays(published.day || "2026-10-01", looksEvery - 1);
            for (const band of BANDS) {
              const held = (one: Pick<PublishedCap, "letters">, said: Model["said"]) => holdOf(one, said, today, band);
              expect(held(published, model.said)).toEqual(held(model, model.said));
              if (before) expect(held(before, earlier.said)).toEqual(held(earlier, earlier.said));
            }
          }
        }
      },
    ),
    { numRuns: 60 },
  );
});
