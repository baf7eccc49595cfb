import { afterAll, beforeAll, expect, test } from "vitest";
import type { NewRecord } from "../../../infra/log/log.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { ofKind } from "../../helpers/published.ts";
import {
  capOf,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  published,
  result,
  settlement,
} from "../2-ingest/records.ts";
import { ArchiveWorld } from "./world.ts";

/** Buyers' published calls on the whole way: log, segments, lake, card, evidence, and the card made again from that. */

const FIRST = Date.parse("2026-11-01T00:30:00.000Z");
const BLOCK_MS = 21_600_000;
const BLOCKS = 40;
const block = (n: number, ms = 0): string => new Date(FIRST + n * BLOCK_MS + ms).toISOString();
const GRADED = "2026-11-11T01:00:00.000Z";
const CLOSED = "2026-11-12T06:30:00.000Z";

/** Forty blocks of our own calls, of which every eighth brought nothing that passes. */
function ownCalls(): NewRecord[] {
  return Array.from({ length: BLOCKS }, (_, n) => {
    const paid = intent("a", block(n));
    const came = n % 8 === 7 ? { delivery: 0, schema_ok: false } : {};
    return [
      handshake("a", block(n, 3_600_000)),
      paid,
      result("a", paid.eventId, block(n, 2_000), came),
      settlement("a", paid.eventId, block(n, 3_000)),
    ];
  }).flat();
}

const buyer = (n: number): string => `buyer_${"0".repeat(24)}${String(n).padStart(2, "0")}`;
const FAILED = {
  pass: false,
  delivered: false,
  delivery: null,
  schema_ok: null,
  response_sha256: null,
  response_bytes: 0,
};
/** A hundred passes of ten wallets that are the seller's own. */
const passes = (): NewRecord[] =>
  Array.from({ length: 100 }, (_, n) => published("a", block(n % BLOCKS, 60_000 + n), n, { payer: buyer(n % 10) }));
const failures = () =>
  Array.from({ length: 6 }, (_, n) =>
    published("a", block(20 + n, 60_000), 500 + n, { ...FAILED, payer: buyer(n % 2) }),
  );
const verdicts = (of: readonly { eventId: string }[], kind: "reproduced" | "not_reproduced"): NewRecord[] =>
  of.map(({ eventId }, n) => followup("a", eventId, block(30 + n, 90_000), { kind }));

const worlds: ArchiveWorld[] = [];
afterAll(async () => {
  for (const world of worlds) await world.close();
});

async function graded(...records: NewRecord[]): Promise<ArchiveWorld> {
  const world = await ArchiveWorld.open();
  worlds.push(world);
  await world.ingest.append(...ownCalls(), ...records);
  await world.grade(GRADED);
  return world;
}

async function cardsOf(world: ArchiveWorld) {
  return ofKind(await world.leaves(), "grade").map(({ card }) => card as unknown as Card);
}
interface Card {
  tier: string;
  band: string;
  composite: number;
  sample_count: number;
  components: Record<string, { point: number; lower: number; upper: number; n_eff: number } | null>;
  flags: string[];
}
const figuresOf = (cards: readonly Card[]) =>
  cards.map(({ tier, band, composite, sample_count, components }) => ({
    ...{ tier, band, composite, sample_count, components },
  }));

let base: Card[];
beforeAll(async () => {
  base = await cardsOf(await graded());
});

test("a hundred passes of a colluding buyer change no figure", async () => {
  expect(base.length).toBeGreaterThan(0);
  expect(base[0]!.components.correctness!.lower).toBeLessThan(0.9);
  const cards = await cardsOf(await graded(...passes()));
  expect(figuresOf(cards)).toEqual(figuresOf(base));
  expect(cards[0]!.flags).not.toContain("buyers_report_worse");
});

test("a failure is a flag at first, and nothing once none of ours failed so", async () => {
  const failed = failures();
  const flagged = await cardsOf(await graded(...failed));
  expect(figuresOf(flagged)).toEqual(figuresOf(base));
  expect(flagged[0]!.flags).toContain("buyers_report_worse");
  const cleared = await cardsOf(await graded(...failed, ...verdicts(failed, "not_reproduced")));
  expect(figuresOf(cleared)).toEqual(figuresOf(base));
  expect(cleared[0]!.flags).not.toContain("buyers_report_worse");
});

test("an answer that refuses the request never counts, whatever is said of it later", async () => {
  const refused = [published("a", block(20, 60_000), 700, { ...FAILED, status: 400 })];
  const cards = await cardsOf(await graded(...refused, ...verdicts(refused, "reproduced")));
  expect(figuresOf(cards)).toEqual(figuresOf(base));
});

test("what one of ours reproduced lowers the figures, and passes beside it raise them nowhere", async () => {
  const failed = failures();
  const lowered = await graded(...failed, ...verdicts(failed, "reproduced"));
  const cards = await cardsOf(lowered);
  const [was, is] = [base[0]!.components.correctness!, cards[0]!.components.correctness!];
  expect(is.lower).toBeLessThan(was.lower);
  expect(is.point).toBeLessThan(was.point);
  expect([is.upper, is.n_eff]).toEqual([was.upper, was.n_eff]);
  expect(cards[0]!.composite).toBeLessThan(base[0]!.composite);
  const both = await cardsOf(await graded(...passes(), ...failed, ...verdicts(failed, "reproduced")));
  expect(figuresOf(both)).toEqual(figuresOf(cards));

  await lowered.closeDays(CLOSED);
  await lowered.prove();
  const { cards: verdict } = await lowered.recompute("all", new DirectorySource(lowered.publicDir));
  expect(verdict.length).toBeGreaterThan(0);
  expect(verdict.filter(({ verdict: says }) => says !== "ok")).toEqual([]);
});

test("evidence has a row of each, with its verdict a later fact, its payer opaque, and never the order", async () => {
  const [failed] = failures();
  const world = await graded(failed!, published("a", block(3, 60_000), 3));
  await world.ingest.append(followup("a", failed!.eventId, later(GRADED, 3_600_000), { kind: "reproduced" }));
  await world.closeDays(CLOSED);
  await world.prove();
  const lines = await world.evidenceLines();
  const rows = lines.filter(({ kind }) => kind === 2);
  expect(rows).toHaveLength(2);
  expect(rows.find(({ obs_id }) => obs_id === failed!.eventId)).toMatchObject({
    ...{ fault: "unconfirmed", payer: buyer(0), settled: true, delivered: false, tx: "0xsold", price: 0.02 },
  });
  expect(lines).toContainEqual(expect.objectContaining({ of: failed!.eventId, field: "fault", value: null }));
  expect(JSON.stringify(lines)).not.toContain("ord_");
  const { cards } = await world.recompute();
  expect(cards.filter(({ verdict }) => verdict !== "ok")).toEqual([]);
});

/** Blind calls of ours, a block each; `come` says what came of each. */
const blindCalls = (from: number, come: readonly object[]): NewRecord[] =>
  come.flatMap((came, n) => {
    const paid = intent("a", block(from + n, 7_200_000), { blind: true, retest: true });
    const at = (ms: number) => block(from + n, 7_200_000 + ms);
    return [paid, result("a", paid.eventId, at(2_000), came), settlement("a", paid.eventId, at(3_000))];
  });
const WRONG = { delivery: 0, schema_ok: false };

test.each<[string, readonly object[], string[]]>([
  ["ours failed in the same way: it counts", [{}, NOTHING], ["reproduced"]],
  ["ours failed in another way: not yet", [{}, WRONG, {}], []],
  ["four in two blocks were served: it never counts", [{}, {}, {}, {}], ["not_reproduced"]],
  ["three are too few", [{}, {}, {}], []],
  ["what fails after the four that were looked at says nothing", [{}, {}, {}, {}, NOTHING], ["not_reproduced"]],
])(
  "%s",
  async (_name, came, says) => {
    const [failed] = failures();
    const world = await ArchiveWorld.open();
    worlds.push(world);
    // Before the failure nothing of ours is a re-test of it, and a call from a known wallet never is.
    const known = intent("a", block(21, 10_000));
    await world.ingest.append(
      ...blindCalls(18, [NOTHING]),
      failed!,
      ...[
        known,
        result("a", known.eventId, block(21, 20_000), NOTHING),
        settlement("a", known.eventId, block(21, 30_000)),
      ],
      ...blindCalls(22, came),
    );
    // A second look at the proof, without which undelivered calls of ours are our own fault.
    const { ingest, lake } = world.ingest;
    await ingest.pass();
    const undelivered = await lake.all<{ obs_id: string; t: Date }>(
      "SELECT obs_id, t FROM samples WHERE kind = 1 AND NOT delivered",
    );
    const shown_again = { watched: true, ...NOTHING };
    for (const { obs_id, t } of undelivered) {
      await world.ingest.append(
        followup("a", obs_id, new Date(t.getTime() + 60_000).toISOString(), { kind: "shown_again", shown_again }),
      );
    }
    await ingest.pass();
    const memory = createMemory(lake);
    expect(await memory.findVerdicts()).toEqual(says.map((kind) => ({ of: failed!.eventId, cap: capOf("a"), kind })));
    await world.ingest.append(
      ...says.map((kind) => followup("a", failed!.eventId, block(39), { kind: kind as "reproduced" })),
    );
    await ingest.pass();
    expect(await memory.findVerdicts()).toEqual([]);
  },
  30_000,
);

test("a published failure starts re-tests, and its verdict ends them", async () => {
  const world = await ArchiveWorld.open();
  worlds.push(world);
  const [failed] = failures();
  const { ingest, lake } = world.ingest;
  const memory = createMemory(lake);
  const retest = async () => {
    await ingest.pass();
    return (await memory.listed())[0]!.retest;
  };
  await world.ingest.append(listing("a", block(0)), ...blindCalls(1, [{}]));
  expect(await retest()).toEqual({ failing: false, passes: 0 });
  await world.ingest.append(failed!);
  expect(await retest()).toEqual({ failing: true, passes: 0, unconfirmed: true });
  await world.ingest.append(followup("a", failed!.eventId, block(39), { kind: "not_reproduced" }));
  expect(await retest()).toEqual({ failing: false, passes: 0 });
});

test("the same records make the same rows in whatever order they came", async () => {
  const failed = failures();
  const records = [...passes().slice(0, 5), ...failed, ...verdicts(failed, "reproduced")];
  const [one, two] = [await graded(...records), await graded(...[...records].reverse(), ...failed)];
  const rowsOf = (world: ArchiveWorld) => world.ingest.lake.all("SELECT * FROM samples WHERE kind = 2 ORDER BY obs_id");
  const rows = await rowsOf(one);
  expect(rows).toHaveLength(11);
  expect(await rowsOf(two)).toEqual(rows);
});
