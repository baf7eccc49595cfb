import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NewRecord } from "../../../infra/log/log.ts";
import { fc } from "../../helpers/histories.ts";
import {
  at,
  CAME,
  capOf,
  correction,
  followup,
  intent,
  later,
  NOTHING,
  reinstated,
  result,
  settlement,
} from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

/** How a paid call's records become one row (records.md, Evidence; verification-method.md section 1). */
let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

const T = at("07:00:00");
const END = later(T, 2_000);

type Made = (name: string, id: string) => NewRecord[];
const watched =
  (over: object = {}): Made =>
  (name, id) => [result(name, id, END, over)];
const paid: Made = (name, id) => [settlement(name, id, later(T, 3_000))];
const nothing = watched(NOTHING);
/** Bytes of an answer that broke off, or that was not whole at the deadline. */
const CUT = { ...NOTHING, status: 200, latency_ms: null, response_sha256: "ab".repeat(32), response_bytes: 4_096 };
const shown =
  (afterMs: number, over: object = {}): Made =>
  (name, id) => [
    followup(name, id, later(END, afterMs), {
      kind: "shown_again",
      shown_again: { ...NOTHING, watched: true, ...over },
    }),
  ];
const both =
  (...parts: Made[]): Made =>
  (name, id) =>
    parts.flatMap((part) => part(name, id));

const CASES: [string, Made, Record<string, unknown>][] = [
  ["an intent alone: nobody saw how it ended", () => [], { fault: "ours", settled: false, delivered: false }],
  [
    "answered and paid",
    both(watched(), paid),
    { fault: null, settled: true, delivered: true, delivery: 1, latency_ms: 500, price: 0.02 },
  ],
  ["answered, and the payment never taken", watched(), { fault: null, settled: false, delivered: true }],
  ["refused: nothing settled, nothing came", nothing, { fault: null, settled: false, delivered: false }],
  [
    "a process that died before the end",
    watched({ ...NOTHING, watched: false, ended: "unknown", fault: "ours" }),
    { fault: "ours" },
  ],
  ["our line was down", both(watched({ ...NOTHING, fault: "ours" }), paid), { fault: "ours", settled: true }],
  ["a wall", watched({ ...NOTHING, fault: "blocked", wall: true }), { fault: "blocked", delivered: false }],
  [
    "money gone, not shown again yet: no accusation",
    both(nothing, paid),
    { fault: "ours", settled: true, delivered: false },
  ],
  [
    "money gone, shown again in vain",
    both(nothing, paid, shown(60_000)),
    { fault: null, settled: true, delivered: false },
  ],
  [
    "an answer that began and was cut off, and the proof was not taken again: delivered, with score 0",
    both(watched({ ...CUT, outcome: 0 }), paid, shown(60_000, { status: 402, response_bytes: 9 })),
    { fault: null, settled: true, delivered: true, delivery: 0, outcome: 0, latency_ms: null },
  ],
  ["an answer that began, not shown again yet", both(watched(CUT), paid), { fault: "ours", delivered: true }],
  [
    "an answer that began, and a whole one when the proof was shown again",
    both(watched(CUT), paid, shown(60_000, { ...CAME, latency_ms: 40 })),
    { fault: null, delivered: true, delivery: 1 },
  ],
  [
    "a 402 with bytes after the money went, shown again in vain: nothing came",
    both(watched({ ...CUT, status: 402 }), paid, shown(60_000)),
    { fault: null, settled: true, delivered: false, delivery: null },
  ],
  [
    "a wall with bytes after the money went, shown again in vain: nothing came",
    both(watched({ ...CUT, status: 403, wall: true, fault: "blocked" }), paid, shown(60_000)),
    { fault: "blocked", settled: true, delivered: false },
  ],
  ["shown again too late to count", both(nothing, paid, shown(660_000)), { fault: "ours" }],
  ["shown again, unwatched", both(nothing, paid, shown(60_000, { watched: false })), { fault: "ours" }],
  [
    "shown again and answered: delivered, and not quicker than the first try",
    both(nothing, paid, shown(60_000), shown(120_000, { ...CAME, latency_ms: 40 })),
    { fault: null, delivered: true, delivery: 1, latency_ms: 500 },
  ],
  [
    "refunded",
    both(nothing, paid, shown(60_000), (name, id) => [
      followup(name, id, later(END, 90_000), { kind: "refund", refund: { tx: "0x1", amount_atomic: "20000" } }),
    ]),
    { fault: null, refunded: true, settled: true },
  ],
  [
    "seen on the chain, not final",
    both(watched(), (name, id) => [settlement(name, id, END, { final: false })]),
    { settled: false },
  ],
  [
    "final later",
    both(
      watched(),
      (name, id) => [settlement(name, id, END, { final: false })],
      (name, id) => [followup(name, id, later(END, 60_000), { kind: "finality" })],
    ),
    { settled: true },
  ],
  [
    "finality of a payment that nobody saw settles nothing",
    both(watched(), (name, id) => [followup(name, id, END, { kind: "finality" })]),
    { settled: false },
  ],
  [
    "another amount was taken than quoted",
    both(watched(), (name, id) => [settlement(name, id, END, { as_quoted: false })]),
    { honest: false },
  ],
  ["dishonest by the answer", both(watched({ honest: false }), paid), { honest: false }],
  [
    "a restart's guess gives way to what was watched",
    both(watched({ ...NOTHING, watched: false, fault: "ours" }), watched(), paid),
    { fault: null, delivered: true },
  ],
];

const rowOf = async (id: string) => {
  const rows = await world.lake.all<Record<string, unknown>>(
    "SELECT * EXCLUDE (row) FROM every_sample WHERE obs_id = $id",
    { id },
  );
  expect(rows).toHaveLength(1);
  return rows[0]!;
};

describe("one row a payment", () => {
  test.each(CASES.map(([name, made, expected], i) => [name, i, made, expected] as const))(
    "%s",
    async (_name, i, made, expected) => {
      const name = `case${i}`;
      const sent = intent(name, T);
      await world.append(sent, ...made(name, sent.eventId));
      await world.ingest.pass();
      expect(await rowOf(sent.eventId)).toMatchObject({ cap: capOf(name), kind: 1, payer: null, ...expected });
    },
  );

  test("a known answer that never came is worth 0, one without a known answer nothing", async () => {
    const known = intent("known", T, { input: "known_answer" });
    const example = intent("example", T, { input: "example" });
    await world.append(
      known,
      example,
      result("known", known.eventId, END, NOTHING),
      result("example", example.eventId, END, NOTHING),
    );
    await world.ingest.pass();
    expect((await rowOf(known.eventId)).outcome).toBe(0);
    expect((await rowOf(example.eventId)).outcome).toBeNull();
  });

  // Draws orders and batches.
  test("records of one payment give the same row in every order and every batching", async () => {
    let n = 0;
    const parts = both(
      watched(),
      watched({ ...NOTHING, watched: false, fault: "ours" }),
      paid,
      shown(60_000),
      shown(90_000, CAME),
    );
    const rows: string[] = [];
    await fc.assert(
      fc.asyncProperty(
        fc.shuffledSubarray([0, 1, 2, 3, 4, 5], { minLength: 6, maxLength: 6 }),
        fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
        async (order, cuts) => {
          const name = `order${n++}`;
          const sent = intent(name, T);
          const all = [sent, ...parts(name, sent.eventId)];
          for (const [i, at_] of order.entries()) {
            await world.append(all[at_]!);
            if (cuts[i]) await world.ingest.pass();
          }
          await world.ingest.pass();
          const { cap: _cap, obs_id: _id, ...row } = await rowOf(sent.eventId);
          rows.push(JSON.stringify(row, (_, part) => (typeof part === "bigint" ? String(part) : part)));
        },
      ),
      { numRuns: 12 },
    );
    expect(new Set(rows).size).toBe(1);
  });
});

describe("corrections", () => {
  const withdrawn = async () =>
    (await world.lake.all<{ obs_id: string }>("SELECT obs_id FROM withdrawn")).map((row) => row.obs_id);

  test("one record, every record before it, and taken back", async () => {
    const one = intent("corr", T);
    const two = intent("corr", later(T, 6 * 3_600_000));
    await world.append(one, two, correction("corr", at("20:00:00"), { id: "one", record_id: one.eventId }));
    await world.ingest.pass();
    expect(await withdrawn()).toEqual([one.eventId]);
    await world.append(correction("corr", at("21:00:00"), { id: "all", record_id: null }));
    await world.ingest.pass();
    expect((await withdrawn()).sort()).toEqual([one.eventId, two.eventId].sort());
    await world.append(reinstated("corr", at("22:00:00"), "all"));
    await world.ingest.pass();
    expect(await withdrawn()).toEqual([one.eventId]);
    await world.append(reinstated("corr", at("23:00:00"), "one"));
    await world.ingest.pass();
    expect(await withdrawn()).toEqual([]);
  });
});
