import { afterAll, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import type { RetryOutcome } from "../../../pipelines/record/vocabulary.ts";
import { readPaymentFacts } from "../../../pipelines/record/volatile.ts";
import { linesAt, ofKind } from "../../helpers/published.ts";
import {
  buyers,
  capOf,
  correction,
  followup,
  handshake,
  intent,
  listing,
  NOTHING,
  PAY_TO,
  result,
  settlement,
  urlOf,
} from "../2-ingest/records.ts";
import { ArchiveWorld } from "./world.ts";

/** What stands beside a grade (what a retry brought, who settled, what was signed), on the whole way: beside the grade, and in no byte of it. */

const FIRST = Date.parse("2026-11-01T00:30:00.000Z");
const block = (n: number, ms = 0): string => new Date(FIRST + n * 21_600_000 + ms).toISOString();
const GRADED = "2026-11-11T01:00:00.000Z";
const CLOSED = "2026-11-12T06:30:00.000Z";
const CAP = capOf("a");

const paidAt = (n: number) => intent("a", block(n));
const seconds = (n: number, more: number): number => Math.floor(Date.parse(block(n)) / 1000) + more;
const SIGNED = { present: 2, unread: 1, valid: 1, authorised: 0 };

/**
 * @param beside with what stands beside a grade: who settled and when, what was signed
 * @param unsettled the call that never settled
 */
const callsOf = (beside: boolean, unsettled?: number): NewRecord[] =>
  Array.from({ length: 36 }, (_, n) => [
    handshake("a", block(n, 3_600_000), beside && n > 2 ? { signed_offers: SIGNED } : {}),
    paidAt(n),
    result("a", paidAt(n).eventId, block(n, 2_000), {
      ...(n % 9 === 8 ? { delivery: 0, schema_ok: false } : {}),
      ...(beside
        ? // Of one call nobody knows when it was answered: it says nothing of how late its settlement was.
          {
            ...(n === 9 ? {} : { answered_time: seconds(n, 2) }),
            signed_receipt: { read: true, valid: true, authorised: n > 5 },
          }
        : {}),
    }),
    ...(n === unsettled
      ? []
      : [
          settlement("a", paidAt(n).eventId, block(n, 3_000), {
            block_time: seconds(n, n % 3 === 0 ? 1 : n % 3 === 1 ? 6 : 14),
            ...(beside ? { sender: n === 9 ? "0xother" : "0xfacilitator" } : {}),
          }),
        ]),
  ]).flat();
const retry = (n: number, outcome: RetryOutcome, ms = 4_000): NewRecord =>
  followup("a", paidAt(n).eventId, block(n, ms), {
    kind: "retried",
    retried: { outcome, status: 200, same_bytes: null },
  });

const worlds: ArchiveWorld[] = [];
afterAll(async () => {
  for (const world of worlds) await world.close();
});

const opened = (...records: NewRecord[]): Promise<ArchiveWorld> => openedWith(callsOf(false), ...records);

async function openedWith(calls: readonly NewRecord[], ...records: NewRecord[]): Promise<ArchiveWorld> {
  const world = await ArchiveWorld.open();
  worlds.push(world);
  await world.ingest.append(listing("a", block(0)), ...calls, ...records);
  return world;
}

const rowOf = async (world: ArchiveWorld) => {
  await world.ingest.ingest.pass();
  return (await volatileRows(world.ingest.lake, new Map())).find((row) => row.capability_id === CAP)!;
};

// Makes the record twice.
test("cards and evidence are the same byte for byte with it and without", async () => {
  const told = async (beside: boolean, ...records: NewRecord[]) => {
    const world = await openedWith(callsOf(beside), ...records);
    await world.grade(GRADED);
    await world.closeDays(CLOSED);
    await world.prove();
    const leaves = await world.leaves();
    const cards = ofKind(leaves, "grade").map(({ card }) => card);
    const files = ofKind(leaves, "evidence").filter(({ key }) => key !== null);
    const lines = (await Promise.all(files.map(({ key }) => linesAt(world.publicStore, key!)))).flat();
    // The line of a handshake has it as it stands in the record: no other word of a line follows from it.
    const evidence = lines.map((line) => line.replaceAll(/"signed_offers":\{[^}]*\},/g, ""));
    const samples = await world.ingest.lake.all("FROM samples ORDER BY obs_id");
    const days = leaves.flatMap((leaf) => (leaf.kind === "evidence" ? [leaf.day] : []));
    return { cards: cards.map((card) => canonicalText(card)), evidence, days, samples };
  };
  const without = await told(false);
  expect([without.cards.length > 0, without.evidence.length > 0]).toEqual([true, true]);
  const retries = Array.from({ length: 36 }, (_, n) => retry(n, n % 2 ? "asked_again" : "failed"));
  // Of a day with nothing else there is no evidence.
  const with_ = await told(true, ...retries, buyers("a", block(20, 9_000)), buyers("a", block(41)));
  expect(with_).toEqual(without);
});

test("the newest is told beside the card, of calls that no correction withdrew", async () => {
  const world = await opened();
  expect(await rowOf(world)).toMatchObject({ retried: null, retried_at: null });
  await world.ingest.append(retry(8, "asked_again"), retry(2, "answered"));
  expect(await rowOf(world)).toMatchObject({ retried: "asked_again", retried_at: Date.parse(block(8, 4_000)) });
  const { eventId } = paidAt(30);
  const shown = { kind: "shown_again" as const, shown_again: { ...NOTHING, watched: true } };
  await world.ingest.append(followup("a", eventId, block(30, 9_000), shown));
  expect(await rowOf(world)).toMatchObject({ retried: "asked_again" });
  const said = { outcome: "answered" as const, status: 200, same_bytes: null };
  await world.ingest.append(followup("a", eventId, block(30, 69_000), { ...shown, retried: said }));
  expect(await rowOf(world)).toMatchObject({ retried: "answered", retried_at: Date.parse(block(30, 69_000)) });
  await world.ingest.append(correction("a", block(38), { id: "ours", record_id: eventId }));
  expect(await rowOf(world)).toMatchObject({ retried: "asked_again" });
});

test("the record remembers for a week that it was looked at", async () => {
  const world = await opened(retry(8, "refused"));
  await world.ingest.ingest.pass();
  const memory = createMemory(world.ingest.lake);
  expect(await memory.wasRetriedSince(CAP, block(8, 4_000))).toBe(true);
  expect(await memory.wasRetriedSince(CAP, block(8, 4_001))).toBe(false);
  expect(await memory.wasRetriedSince(capOf("b"), block(0))).toBe(false);
});

test("who settled, how long after the answer, what never settled, and what was signed", async () => {
  expect(readPaymentFacts((await rowOf(await opened())).payments)).toBeNull();
  const world = await openedWith(callsOf(true, 4));
  const on = { network: "eip155:8453" };
  expect(readPaymentFacts((await rowOf(world)).payments)).toEqual({
    offers: SIGNED,
    receipts: { present: 36, unread: 0, valid: 36, authorised: 30 },
    settlers: [
      { ...on, sender: "0xfacilitator", calls: 34, median_s: 4, max_s: 12 },
      { ...on, sender: "0xother", calls: 1, median_s: null, max_s: null },
    ],
    unsettled: 1,
    buyers: null,
  });
  // A withdrawn call says nothing; of offers the newest 402 speaks, also where it has none any more.
  await world.ingest.append(
    correction("a", block(38), { id: "ours", record_id: paidAt(4).eventId }),
    handshake("a", block(37)),
  );
  expect(readPaymentFacts((await rowOf(world)).payments)).toMatchObject({
    ...{ offers: null, receipts: { present: 35 }, unsettled: 0 },
  });
});

test("who else pays there: what was read last, and the record knows when", async () => {
  const on = { network: "eip155:1", asset: "0xasset" };
  const world = await openedWith([], intent("a", block(0), { wallet: "0xBLIND" }));
  const paid = (n: number, over: object = {}) => settlement("a", paidAt(0).eventId, block(n), over);
  await world.ingest.append(paid(1), paid(2, on), paid(3, { to: "0xelsewhere", as_quoted: false }));
  await world.ingest.ingest.pass();
  const memory = createMemory(world.ingest.lake);
  const payee = { cap: CAP, url: urlOf("a"), ...on, payTo: PAY_TO };
  expect(await memory.payees(block(2))).toEqual([{ ...payee, lastReadAt: null }]);
  expect(await memory.payees(block(2, 1))).toEqual([]);
  expect(await memory.walletsPaying(PAY_TO, block(0))).toEqual(["0xblind"]);
  expect(await memory.walletsPaying(PAY_TO, block(0, 1))).toEqual([]);
  expect(await memory.walletsPaying("0xelsewhere", block(0))).toEqual([]);

  const alone = { ...on, payers: 0, transfers: 0, total: "0.000000", largest_share: null, effective_payers: null };
  await world.ingest.append(buyers("a", block(5), alone), buyers("a", block(4), on), buyers("a", block(3)));
  expect(readPaymentFacts((await rowOf(world)).payments)).toMatchObject({
    ...{ offers: null, receipts: null, settlers: [], unsettled: 0 },
    buyers: { ...alone, whole: true, ours: { transfers: 12, total: "0.240000" } },
  });
  expect(await memory.payees(block(0))).toEqual([{ ...payee, lastReadAt: block(5) }]);
  // Of where it was paid before nothing is known here.
  await world.ingest.append(paid(6, { asset: "0xother" }));
  await world.ingest.ingest.pass();
  expect(await memory.payees(block(0))).toEqual([
    { ...payee, network: "eip155:8453", asset: "0xother", lastReadAt: null },
  ]);
});
