import { tableFromIPC, tableToIPC } from "apache-arrow";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import type { VolatileRow } from "../../../pipelines/record/volatile.ts";
import { encodeVolatile, readVolatileRows } from "../../../pipelines/record/volatile-arrow.ts";
import { fc } from "../../helpers/histories.ts";
import { rowOf as publicRow } from "../../helpers/public-record.ts";
import {
  ask,
  at,
  capOf,
  correction,
  dispute,
  handshake,
  intent,
  listing,
  PAY_TO,
  reinstated,
  result,
  TERMS,
  urlOf,
} from "./records.ts";
import { openTestWorld, PARTITIONS, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openTestWorld({ ownHosts: ["ours.example"] });
});
afterAll(() => world.close());

const ALL = Object.fromEntries(TOPICS.map((topic) => [topic, 1e9]));
/** {topic: next offset} of what a run would read now of one endpoint. */
const readNow = async (name: string): Promise<Record<string, number>> => {
  const positions = await world.ingest.positions();
  const part = partitionOf(capOf(name), PARTITIONS);
  return Object.fromEntries(TOPICS.map((topic) => [topic, positions[topic]?.[part] ?? 0]));
};
const rowOf = async (name: string, published: Record<string, string> = {}, read: Record<string, number> = ALL) => {
  const cards = new Map(Object.entries(published).map(([key, at]) => [capOf(key), { leaf: 7, at, read }]));
  return (await volatileRows(world.lake, cards)).find((row) => row.capability_id === capOf(name));
};

describe("volatile rows", () => {
  test("counts, the newest 402 and defects", async () => {
    const sent = intent("v", at("09:00:00"));
    await world.append(
      listing("v", at("01:00:00"), { seller_controlled: true, defects: [{ defect: "bad_entry", says: "an entry" }] }),
      handshake("v", at("02:00:00"), { price: "0.010000" }),
      handshake("v", at("08:00:00"), { differs: [{ defect: "price_differs", says: "dearer" }] }),
      handshake("v", at("08:30:00"), {
        state: "status",
        status: 500,
        live: false,
        price: null,
        pay_to: null,
        terms: null,
      }),
      handshake("v", at("08:40:00"), {
        state: "silent",
        status: null,
        live: false,
        price: null,
        pay_to: null,
        terms: null,
      }),
    );
    await world.ingest.pass();
    expect(await rowOf("v")).toEqual({
      ...{ corrected: "[]", request: null, card_leaf: null },
      ...{ capability_id: capOf("v"), url: urlOf("v"), method: "GET", probes: 4, answered: 3, asked_for_payment: 2 },
      ...{ first_seen: Date.parse(at("02:00:00")), last_seen: Date.parse(at("08:40:00")), price: "0.020000" },
      ...{
        asset: "0xasset",
        networks: ["eip155:8453"],
        ...{
          unit: "USD",
          asked_pay_to: PAY_TO,
          pay_to: PAY_TO,
          pay_tos: [PAY_TO],
          pay_tos_before: [],
          pay_tos_listed: [],
        },
        protocols: ["x402"],
        networks_listed: [],
        distinct_prices: 2,
      },
      ...{ last_state: "silent", last_status: null, retried: null, retried_at: null, payments: null },
      ...{ paid_calls: 0, unserved: 0, unserved_since: null, thefts: null, observations_since: 0, withdrawn_since: 0 },
      defects: JSON.stringify([
        { defect: "bad_entry", says: "an entry", seenAt: at("01:00:00") },
        { ...TERMS.defects[0], seenAt: at("08:00:00") },
        { defect: "price_differs", says: "dearer", seenAt: at("08:00:00") },
      ]),
    });
    const none = { live: false, price: null, pay_to: null, terms: null };
    await world.append(handshake("v", at("08:50:00"), { ...none, state: "status", status: 404 }));
    // One that came late, and one of our own fault, change nothing.
    await world.append(handshake("v", at("08:45:00")), handshake("v", at("08:55:00"), { ...none, fault: "ours" }));
    await world.ingest.pass();
    expect(await rowOf("v")).toMatchObject({ probes: 7, last_state: "status", last_status: 404 });
    await world.append(handshake("v", at("08:59:00")));
    await world.ingest.pass();
    expect(await rowOf("v")).toMatchObject({ probes: 8, last_state: "asked", last_status: 402 });
    await world.append(sent, result("v", sent.eventId, at("09:00:02")));
    await world.ingest.pass();
    expect(await rowOf("v", { v: at("08:10:00") })).toMatchObject({
      ...{ probes: 8, paid_calls: 1, observations_since: 7, card_leaf: 7 },
    });
  });

  test("records that a later correction withdrew, of the card's window, and only while it is in force", async () => {
    const [one, two, bad] = [
      handshake("w", at("01:00:00")),
      handshake("w", at("02:00:00")),
      handshake("w", at("03:00:00"), { fault: "ours" }),
    ];
    await world.append(listing("w", at("00:00:00")), one!, two!, bad!, handshake("w", at("01:00:00", "2026-07-01")));
    const read: Record<string, number>[] = [];
    for (const said of [
      correction("w", at("04:00:00"), { id: "early", record_id: one!.eventId }),
      correction("w", at("06:00:00"), { id: "late" }),
    ]) {
      await world.ingest.pass();
      read.push(await readNow("w"));
      await world.append(said);
    }
    await world.ingest.pass();
    const since = async () => (await rowOf("w", { w: at("05:00:00") }, read[1]))?.withdrawn_since;
    expect(await since()).toBe(1);
    // Taken back after the card, which had been made without its record: that one it never stood on.
    await world.append(reinstated("w", at("07:00:00"), "early"));
    await world.ingest.pass();
    expect(await since()).toBe(1);
    expect((await rowOf("w", { w: at("07:30:00") }, await readNow("w")))?.withdrawn_since).toBe(0);
    expect((await rowOf("w", { w: at("03:30:00") }, read[0]))?.withdrawn_since).toBe(2);
    await world.append(reinstated("w", at("08:00:00"), "late"));
    await world.ingest.pass();
    expect(await since()).toBe(0);
  });

  test("what a card's run had read of corrections decides, not the clock of the machine that issued them", async () => {
    const since = async (read: Record<string, number>) =>
      (await rowOf("skew", { skew: at("05:00:00") }, read))?.withdrawn_since;
    const own = handshake("skew", at("01:00:00"));
    await world.append(listing("skew", at("00:00:00")), own, handshake("skew", at("02:00:00")));
    await world.ingest.pass();
    const before = await readNow("skew");
    // Issued by a clock that was slow: before the card by its time, after its run by the log.
    await world.append(correction("skew", at("04:00:00"), { id: "slow", record_id: own.eventId }));
    await world.ingest.pass();
    const between = await readNow("skew");
    expect([await since(before), await since(between)]).toEqual([1, 0]);
    // And by one that was fast: after the card by its time, read by its run.
    await world.append(correction("skew", at("06:00:00"), { id: "fast" }));
    await world.ingest.pass();
    const after = await readNow("skew");
    expect([await since(before), await since(between), await since(after)]).toEqual([2, 1, 0]);
    // Taken back: the record of the one is withdrawn by the other still.
    await world.append(reinstated("skew", at("06:30:00"), "slow"));
    await world.ingest.pass();
    const last = await readNow("skew");
    expect([await since(before), await since(between), await since(last)]).toEqual([2, 1, 0]);
    await world.append(reinstated("skew", at("04:30:00"), "fast"));
    await world.ingest.pass();
    expect([await since(before), await since(between), await since(last)]).toEqual([0, 0, 0]);
  });

  test("a record told after the card's run is none that it stood on, whenever it was observed", async () => {
    const early = handshake("told", at("02:00:00"));
    const call = intent("told", at("02:30:00"));
    await world.append(listing("told", at("00:00:00")), early, call);
    await world.ingest.pass();
    const read = await readNow("told");
    const late = handshake("told", at("01:00:00"));
    await world.append(late, result("told", call.eventId, at("02:30:05")));
    await world.append(correction("told", at("06:00:00"), { id: "of both" }));
    await world.ingest.pass();
    expect((await rowOf("told", { told: at("05:00:00") }, read))?.withdrawn_since).toBe(1);
    const all = { ...ALL, corrections: read.corrections! };
    expect((await rowOf("told", { told: at("05:00:00") }, all))?.withdrawn_since).toBe(3);
    expect((await rowOf("told", { told: at("05:00:00") }, {}))?.withdrawn_since).toBe(0);
  });

  test("what a handshake has beside method and url: the seller's own example, its newest", async () => {
    const { body } = JSON.parse(Buffer.from(listing("made", at("01:00:00")).value).toString());
    const claimed = (query: Record<string, string>, time: string, own: boolean) =>
      listing("made", time, {
        ...{ claims: { ...body.claims, example: { query } }, seller_controlled: own },
        source: own ? "https://made.example" : "https://catalogue.example",
      });
    await world.append(claimed({ q: "theirs" }, at("01:00:00"), false));
    await world.ingest.pass();
    const request = async () => JSON.parse((await rowOf("made"))?.request ?? "null");
    expect(await request()).toEqual({ url: `${urlOf("made")}?q=theirs` });
    await world.append(claimed({ q: "own" }, at("02:00:00"), true), claimed({ q: "new" }, at("03:00:00"), false));
    await world.ingest.pass();
    expect(await request()).toEqual({ url: `${urlOf("made")}?q=own` });
    await world.append(claimed({}, at("04:00:00"), true));
    await world.ingest.pass();
    expect((await rowOf("made"))?.request).toBeNull();
  });
  test("an url that was only asked about is known once it was probed; ours and disputed ones are marked for grading", async () => {
    await world.append(ask("asked", at("01:00:00")), listing("ours", at("01:00:00")), handshake("row", at("01:00:00")));
    await world.append(dispute("row", at("02:00:00")));
    await world.ingest.pass();
    expect(await rowOf("asked")).toBeUndefined();
    await world.append(handshake("asked", at("01:30:00")));
    await world.ingest.pass();
    expect(await rowOf("asked")).toMatchObject({ url: urlOf("asked"), probes: 1, price: "0.020000" });
    expect(await rowOf("row")).toBeUndefined();
    const site = (name: string) =>
      world.lake.all("SELECT pay_to, domain, ours, disputed FROM site WHERE cap = $cap", { cap: capOf(name) });
    expect(await site("ours")).toEqual([{ pay_to: null, domain: "ours.example", ours: true, disputed: false }]);
    expect(await site("row")).toEqual([{ pay_to: PAY_TO, domain: null, ours: false, disputed: true }]);
    await world.append(correction("row", at("03:00:00"), { id: "settles it" }));
    await world.ingest.pass();
    expect(await site("row")).toMatchObject([{ disputed: false }]);
  });
});

describe("Arrow", () => {
  const text = fc.string({ unit: "grapheme" });
  const count = fc.maxSafeNat();
  const row: fc.Arbitrary<VolatileRow> = fc.record({
    ...{ capability_id: text, url: text, method: text, defects: text, corrected: text },
    ...{ probes: count, answered: count, asked_for_payment: count, distinct_prices: count, paid_calls: count },
    ...{ observations_since: count, withdrawn_since: count, card_leaf: fc.option(count) },
    ...{ first_seen: fc.option(count), last_seen: fc.option(count) },
    ...{ price: fc.option(text), asset: fc.option(text), pay_to: fc.option(text), request: fc.option(text) },
    ...{ networks: fc.array(text), protocols: fc.array(text), networks_listed: fc.array(text) },
    ...{
      unit: fc.option(text),
      asked_pay_to: fc.option(text),
      pay_tos: fc.array(text),
      pay_tos_before: fc.array(text),
      pay_tos_listed: fc.array(text),
    },
    ...{ unserved: count, unserved_since: fc.option(count), thefts: fc.option(text) },
    ...{
      last_state: fc.option(text),
      last_status: fc.option(count),
      retried: fc.option(text),
      retried_at: fc.option(count),
      payments: fc.option(text),
    },
  });

  test("what goes in comes out", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(row, { maxLength: 20 }), async (rows) => {
        expect([...readVolatileRows(await encodeVolatile(rows))]).toEqual(rows);
      }),
      { numRuns: 50 },
    );
  });

  test("a table without one of the columns is refused", async () => {
    const table = tableFromIPC(await encodeVolatile([publicRow({ url: "https://a.example/x" })]));
    const torn = tableToIPC(table.select(table.schema.names.filter((name) => name !== "corrected")), "file");
    expect(() => [...readVolatileRows(torn)]).toThrow("volatile table: no column corrected");
  });

  test.each([
    ["no Arrow", Buffer.from("{}")],
    ["nothing", new Uint8Array()],
    ["a torn file", encodeVolatile([]).then((whole) => whole.subarray(0, 200))],
  ])("%s is refused", async (_what, given) => {
    const bytes = await given;
    expect(() => [...readVolatileRows(bytes)]).toThrow(/no Arrow file|no column/);
  });
});
