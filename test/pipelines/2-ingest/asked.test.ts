import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { historyOf, volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import type { Offer } from "../../../pipelines/record/bodies.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import { MAX_PAY_TOS, readThefts } from "../../../pipelines/record/volatile.ts";
import {
  at,
  capOf,
  correction,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  OFFER,
  PAY_TO,
  result,
  settlement,
  TERMS,
} from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const BASE58 = "7YWHMfk9JZe0LM0g1ZauHuiSxhi".padEnd(44, "x").replaceAll("0", "1");
const POLYGON = "0x2222222222222222222222222222222222222222";

const offer = (over: Partial<Offer>): Offer => ({ ...OFFER, payable: false, ...over });
const terms = (...offers: Offer[]) => ({ terms: { ...TERMS, offers } });
const solana = (price: string) => offer({ network: SOLANA, asset: MINT, pay_to: BASE58, price });
const payTo = (n: number): string => `0x${n.toString(16).padStart(40, "0")}`;

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
  const names = ["asked", "foreign", "euro", "back", "first", "turned", "mixed"];
  await world.append(...names.map((name) => listing(name, at("00:00:00", "2026-11-09"))));
});
afterAll(() => world.close());

const rowOf = async (name: string) => {
  const rows = await volatileRows(world.lake, new Map());
  return rows.find((row) => row.capability_id === capOf(name));
};

describe("what the newest 402 asked, apart from what our rail would pay", () => {
  test("price and asset of the first offer that can be read, networks of all of them, every payTo", async () => {
    await world.append(
      handshake("asked", at("01:00:00"), {
        price: "0.030000",
        ...terms(
          offer({ network: "eip155:1", asset: "0xunknown", pay_to: null, decimals: null, price: null }),
          solana("0.010000"),
          offer({ network: "eip155:137", asset: "0x3c49", pay_to: POLYGON, price: "0.020000" }),
          offer({ network: "mystery", asset: null, pay_to: POLYGON.toUpperCase().replace("0X", "0x"), price: null }),
          { ...OFFER, network: "eip155:8453", price: "0.030000" },
          { ...OFFER, network: "eip155:137", price: "0.030000" },
        ),
      }),
    );
    await world.ingest.pass();
    expect(await rowOf("asked")).toMatchObject({
      ...{ price: "0.010000", asset: MINT, unit: "USD", asked_pay_to: BASE58, pay_to: PAY_TO, pay_tos_before: [] },
      networks: ["eip155:1", SOLANA, "eip155:137", "eip155:8453"],
      pay_tos: [BASE58, POLYGON, PAY_TO],
      distinct_prices: 1,
    });
  });

  test("a 402 that no rail of ours pays has its price, its place in the history and its payee", async () => {
    await world.append(
      handshake("foreign", at("01:00:00"), { price: null, pay_to: null, ...terms(solana("0.500000")) }),
      handshake("foreign", at("02:00:00"), { price: null, pay_to: null, ...terms(solana("0.700000")) }),
    );
    await world.ingest.pass();
    const [asset, networks] = [MINT, [SOLANA]];
    expect(await rowOf("foreign")).toMatchObject({
      price: "0.700000",
      asset,
      networks,
      pay_to: null,
      pay_tos: [BASE58],
    });
    expect((await rowOf("foreign"))?.distinct_prices).toBe(2);
    for await (const { rows } of historyOf(world.lake, [bucketOf(capOf("foreign"))], new Date(at("12:00:00")))) {
      const day = rows.find((one) => one.capability_id === capOf("foreign"));
      expect(day).toMatchObject({ price_low: 500_000n, price_high: 700_000n, price_last: 700_000n });
    }
  });

  test("the price asked of a paid call is its first leg's first offer; what we paid stays what is graded", async () => {
    const leg = { honest: true, latency_ms: 9, ...terms(solana("0.900000"), OFFER), differs: [] };
    const call = intent("leg", at("01:00:00"), { first_leg: leg });
    await world.append(listing("leg", at("00:00:00")), call);
    await world.ingest.pass();
    const row = await rowOf("leg");
    expect([row?.price, row?.pay_tos, row?.distinct_prices]).toEqual(["0.900000", [BASE58, PAY_TO], 1]);
    const [sample] = await world.lake.all("SELECT price, asked_micro FROM samples WHERE obs_id = $id", {
      id: call.eventId,
    });
    expect(sample).toEqual({ price: 0.02, asked_micro: 900_000n });
  });

  test("an asset of which we do not know what it is worth is named, and no amount is made up", async () => {
    const one = offer({ network: "eip155:8453", asset: "0xeuro", decimals: null, price: null });
    await world.append(handshake("euro", at("01:00:00"), { price: null, ...terms(one) }));
    await world.ingest.pass();
    expect(await rowOf("euro")).toMatchObject({ price: null, asset: "0xeuro", unit: null, distinct_prices: 0 });
  });
});

describe("whom an endpoint ever named", () => {
  test("at most so many, those seen last, in whatever order the records came", async () => {
    const all = Array.from({ length: 80 }, (_, n) =>
      Array.from({ length: 2 }, (_, k) => offer({ pay_to: payTo(n * 2 + k + 1) })),
    );
    const at_ = (n: number): string => later(at("00:00:00"), n * 60_000);
    const orders: [string, number[]][] = [
      ["first", all.map((_, n) => n)],
      ["turned", all.map((_, n) => all.length - 1 - n)],
      ["mixed", all.map((_, n) => (n * 37) % all.length)],
    ];
    for (const [name, order] of orders) {
      for (const [i, n] of order.entries()) {
        await world.append(handshake(name, at_(n), terms(...all[n]!)));
        if (i % 20 === 7) await world.ingest.pass();
      }
      await world.ingest.pass();
      const row = await rowOf(name);
      expect(row?.pay_tos).toEqual([payTo(159), payTo(160)]);
      expect(row?.pay_tos_before).toHaveLength(MAX_PAY_TOS - 2);
      // Two of each 402, newest first, and of equals the smaller address first.
      const expected = Array.from({ length: 31 }, (_, i) => [payTo(157 - 2 * i), payTo(158 - 2 * i)]).flat();
      expect(row?.pay_tos_before).toEqual(expected);
    }
  });

  test("an address that comes back is not twice there, and its checksum makes it no other", async () => {
    const mixed = `0x${"Ab".repeat(20)}`;
    await world.append(
      handshake("back", at("01:00:00"), terms(offer({ pay_to: mixed.toLowerCase() }))),
      handshake("back", at("02:00:00"), terms(offer({ pay_to: POLYGON }))),
      handshake("back", at("03:00:00"), terms(offer({ pay_to: mixed }))),
    );
    await world.ingest.pass();
    expect(await rowOf("back")).toMatchObject({ pay_tos: [mixed], pay_tos_before: [POLYGON] });
  });

  test("the seller's own newest listing names its payees, a catalogue's does not, and one that was taken down neither", async () => {
    const claims = (pay_to: string) => ({
      ...{ url: "u", method: null, tool: null, description: null, class: "any", fixed_price: false },
      ...{ offers: [offer({ pay_to })], example: null, output_mime: null },
    });
    const own = { seller_controlled: true, source: "https://own.example" };
    await world.append(
      listing("own", at("01:00:00"), { ...own, claims: claims(payTo(1)) }),
      listing("own", at("02:00:00"), { ...own, claims: claims(payTo(2)) }),
      listing("own", at("03:00:00"), { claims: claims(payTo(3)) }),
      listing("theirs", at("03:00:00"), { claims: claims(payTo(3)) }),
      listing("moved", at("01:00:00"), { ...own, source_id: "row 1", claims: claims(payTo(4)) }),
      listing("there", at("02:00:00"), { ...own, source_id: "row 1", claims: claims(payTo(4)) }),
    );
    await world.ingest.pass();
    expect((await rowOf("own"))?.pay_tos_listed).toEqual([payTo(2)]);
    expect((await rowOf("theirs"))?.pay_tos_listed).toEqual([]);
    // A row that names another endpoint now says nothing of the one it named before.
    expect((await rowOf("moved"))?.pay_tos_listed).toEqual([]);
    expect((await rowOf("there"))?.pay_tos_listed).toEqual([payTo(4)]);
  });
});

describe("paid calls that brought nothing", () => {
  test("counted from the chain and after a second look; not when paid back, and not when withdrawn", async () => {
    const lost = async (name: string, time: string, more: "refund" | "none" | "unseen" = "none") => {
      const sent = intent(name, time);
      const end = later(time, 60_000);
      await world.append(sent, result(name, sent.eventId, end, NOTHING), settlement(name, sent.eventId, end));
      const again = { kind: "shown_again" as const, shown_again: { ...NOTHING, watched: true } };
      if (more !== "unseen") await world.append(followup(name, sent.eventId, later(end, 60_000), again));
      if (more === "refund")
        await world.append(
          followup(name, sent.eventId, later(end, 120_000), {
            kind: "refund",
            refund: { tx: "0x1", amount_atomic: "1" },
          }),
        );
      return sent;
    };
    await world.append(listing("thief", at("00:00:00")), listing("fair", at("00:00:00")));
    const first = await lost("thief", at("01:00:00"));
    await lost("thief", at("02:00:00"));
    await lost("fair", at("01:00:00"), "refund");
    await lost("fair", at("03:00:00"), "unseen");
    const good = intent("fair", at("05:00:00"));
    await world.append(
      good,
      result("fair", good.eventId, at("05:00:01")),
      settlement("fair", good.eventId, at("05:00:01")),
    );
    await world.ingest.pass();
    expect(await rowOf("thief")).toMatchObject({ unserved: 2, unserved_since: Date.parse(at("01:00:00")) });
    expect(await rowOf("fair")).toMatchObject({ paid_calls: 3, unserved: 0, unserved_since: null });
    await world.append(correction("thief", at("09:00:00"), { id: "ours", record_id: first.eventId }));
    await world.ingest.pass();
    expect(await rowOf("thief")).toMatchObject({ unserved: 1, unserved_since: Date.parse(at("02:00:00")) });
  });

  test("by the address that had the money: the first of each of the newest three days, and none once it is withdrawn", async () => {
    const lost = async (time: string, pay_to: string, day: string) => {
      const t = at(time, day);
      const quote = { price: "0.020000", amount_atomic: "20000", asset: "0xasset", network: "eip155:8453", pay_to };
      const sent = intent("taker", t, { quote: { ...quote, max_timeout_s: 60, x402_version: 1 } });
      const again = { kind: "shown_again" as const, shown_again: { ...NOTHING, watched: true } };
      await world.append(
        sent,
        result("taker", sent.eventId, later(t, 60_000), NOTHING),
        settlement("taker", sent.eventId, later(t, 60_000)),
        followup("taker", sent.eventId, later(t, 120_000), again as never),
      );
    };
    const one = `0x${"Ab".repeat(20)}`;
    await world.append(listing("taker", at("00:00:00", "2026-11-01")));
    for (const day of ["2026-11-02", "2026-11-03", "2026-11-05", "2026-11-09"]) {
      await lost("22:00:00", one, day);
      await lost("07:00:00", one.toLowerCase(), day);
    }
    await lost("08:00:00", payTo(2), "2026-11-10");
    await world.ingest.pass();
    const days = (...all: string[]) => all.map((day) => Date.parse(at("07:00:00", day)));
    const row = await rowOf("taker");
    expect(row?.unserved).toBe(9);
    expect(readThefts(row?.thefts)).toEqual([
      { pay_to: payTo(2), days: [Date.parse(at("08:00:00", "2026-11-10"))] },
      { pay_to: one.toLowerCase(), days: days("2026-11-09", "2026-11-05", "2026-11-03") },
    ]);
    await world.append(correction("taker", at("09:00:00", "2026-11-11"), { id: "all" }));
    await world.ingest.pass();
    expect((await rowOf("taker"))?.thefts).toBeNull();
  });
});
