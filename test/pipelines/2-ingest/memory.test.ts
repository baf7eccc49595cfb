import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import type { Memory } from "../../../pipelines/record/memory.ts";
import {
  at,
  capOf,
  correction,
  delisting,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  PAY_TO,
  result,
  settlement,
  TERMS,
  urlOf,
} from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World;
let memory: Memory;
beforeAll(async () => {
  world = await openTestWorld();
  memory = createMemory(world.lake);
});
afterAll(() => world.close());

const listed = async (name: string) => (await memory.listed()).find(({ cap }) => cap === capOf(name));

describe("listed", () => {
  test("the seller's own listing speaks before a newer one of a catalogue; delisted and moved ones are gone", async () => {
    const own = listing("own", at("01:00:00"), {
      source: "https://own.example",
      source_id: "x",
      seller_controlled: true,
    });
    const again = listing("own", at("02:00:00"), { source_id: "own-in-a-catalogue" });
    await world.append(own, again, listing("gone", at("01:00:00")), delisting("gone", at("02:00:00")));
    await world.append(
      listing("moved", at("01:00:00"), { source_id: "it" }),
      listing("to", at("02:00:00"), { source_id: "it" }),
    );
    await world.ingest.pass();
    expect(await listed("own")).toMatchObject({
      ...{ url: urlOf("own"), method: "GET", tool: null, sellerListing: own.eventId, firstSeen: null, paidBlocks: 0 },
      ...{ retest: { failing: false, passes: 0 }, lastPrice: null, lastPayTo: null, lastTried: null },
      standing: [own.eventId, again.eventId].sort(),
    });
    expect((await listed("own"))?.sellerClaims).toEqual((await listed("own"))?.claims);
    expect(await listed("to")).toMatchObject({ sellerListing: null, sellerClaims: null });
    expect([await listed("gone"), await listed("moved")]).toEqual([undefined, undefined]);
    await world.append(listing("gone", at("03:00:00")));
    await world.ingest.pass();
    expect(await listed("gone")).toBeDefined();
  });

  test("the newest 402 gives the price, a free probe or a paid call's; late arrivals change nothing", async () => {
    await world.append(
      listing("price", at("01:00:00")),
      handshake("price", at("09:00:00"), { price: "0.050000", pay_to: "0xnew" }),
      handshake("price", at("08:00:00"), { price: "0.040000" }),
      handshake("price", at("10:00:00"), {
        state: "silent",
        live: false,
        price: null,
        pay_to: null,
        terms: null,
        status: null,
      }),
    );
    await world.ingest.pass();
    expect(await listed("price")).toMatchObject({
      lastPrice: "0.050000",
      lastPayTo: "0xnew",
      firstSeen: at("08:00:00"),
    });
    await world.append(handshake("price", at("07:00:00"), { price: "0.030000" }), intent("price", at("11:00:00")));
    await world.ingest.pass();
    expect(await listed("price")).toMatchObject({
      lastPrice: "0.020000",
      lastPayTo: PAY_TO,
      firstSeen: at("07:00:00"),
    });
  });

  test("a turn is an intent, or a first leg that could not be paid; a free probe is none, nor what was our fault", async () => {
    const tried = async (...records: Parameters<World["append"]>) => {
      await world.append(...records);
      await world.ingest.pass();
      return (await listed("turn"))?.lastTried;
    };
    const leg = (time: string, over: object) => handshake("turn", at(time), { planned: "paid", ...over }, time);
    expect(await tried(listing("turn", at("00:30:00")), handshake("turn", at("01:00:00")))).toBeNull();
    expect(await tried(leg("02:00:00", { state: "silent", live: false, fault: "ours" }))).toBeNull();
    expect(await tried(leg("03:00:00", { state: "silent", live: false }))).toBe(at("03:00:00"));
    expect(await tried(intent("turn", at("09:00:00")))).toBe(at("09:00:00"));
    expect(await tried(leg("08:00:00", {}), handshake("turn", at("10:00:00")))).toBe(at("09:00:00"));
    expect(await tried(leg("11:00:00", {}))).toBe(at("11:00:00"));
  });

  test("paid blocks count once; a failure starts re-tests, three passes in a row end them", async () => {
    const name = "retest";
    await world.append(listing(name, at("00:30:00")));
    let hour = 0;
    const call = async (over: object) => {
      const time = at(`${String(hour++).padStart(2, "0")}:10:00`);
      const sent = intent(name, time);
      await world.append(sent, result(name, sent.eventId, later(time, 2_000), over));
      await world.ingest.pass();
      const one = await listed(name);
      return [one?.paidBlocks, one?.retest.failing, one?.retest.passes, sent.eventId] as const;
    };
    expect((await call({})).slice(0, 3)).toEqual([1, false, 0]);
    const failed = await call({ delivery: 0.4 });
    expect(failed.slice(0, 3)).toEqual([1, true, 0]);
    expect((await call({})).slice(0, 3)).toEqual([1, true, 1]);
    expect((await call({ ...NOTHING, fault: "ours" })).slice(0, 3)).toEqual([1, true, 1]);
    expect((await call({})).slice(0, 3)).toEqual([1, true, 2]);
    expect((await call({ ...NOTHING, fault: "bad_input" })).slice(0, 3)).toEqual([1, true, 2]);
    expect((await call({ ...NOTHING, fault: "blocked", wall: true })).slice(0, 3)).toEqual([2, true, 0]);
    await call({});
    await call({});
    expect((await call({})).slice(0, 3)).toEqual([2, false, 0]);
    const wrong = await call({ outcome: 0 });
    expect(wrong.slice(0, 3)).toEqual([2, true, 0]);
    await world.append(correction(name, at("23:00:00"), { id: "retest", record_id: wrong[3] }));
    await world.ingest.pass();
    expect((await listed(name))?.retest).toEqual({ failing: false, passes: 0 });
  });
});

describe("what was done, and what is open", () => {
  test("by the day of the planned slot, not of the call", async () => {
    const block = Math.floor(Date.parse(at("18:00:00", "2026-10-01")) / 21_600_000);
    const slot = { block, minute: 359 };
    const probed = handshake("done", at("00:00:05", "2026-10-02"), { slot });
    const paid = intent("done", at("12:00:00", "2026-10-01"));
    await world.append(probed, paid, handshake("done", at("00:00:00", "2026-10-02")));
    await world.ingest.pass();
    expect(await memory.recordedIdsOn("2026-10-01")).toEqual(new Set([probed.eventId, paid.eventId]));
    expect((await memory.recordedIdsOn("2026-10-02")).size).toBe(1);
    expect((await memory.recordedIdsOn("2026-10-03")).size).toBe(0);
  });

  test("open until a result, awaited until a Transfer, a last look or the end of the signature", async () => {
    const now = Math.floor(Date.now() / 1000);
    const [open, waiting, seen, closed, expired] = await Promise.all(
      ["open", "waiting", "seen", "closed", "expired"].map(async (name) => {
        const over = { valid_before: name === "expired" ? now - 7_200 : now + 60, nonce: `0x${name}` };
        const sent = intent(name, at("03:00:00", "2026-10-05"), over);
        await world.append(sent);
        if (name !== "open") await world.append(result(name, sent.eventId, at("03:00:02", "2026-10-05")));
        return sent;
      }),
    );
    await world.append(settlement("seen", seen!.eventId, at("03:00:04", "2026-10-05")));
    await world.append(followup("closed", closed!.eventId, at("03:00:04", "2026-10-05"), { kind: "finality" }));
    await world.ingest.pass();
    const ids = (found: { eventId: string }[]) => found.map(({ eventId }) => eventId);
    const opened = await memory.openIntents();
    expect(ids(opened)).toContain(open!.eventId);
    expect(ids(opened)).not.toContain(waiting!.eventId);
    expect(opened.find(({ eventId }) => eventId === open!.eventId)).toMatchObject({
      ...{ cap: capOf("open"), observedAt: at("03:00:00", "2026-10-05") },
      intent: { nonce: "0xopen", first_leg: { terms: TERMS } },
    });
    const awaited = ids(await memory.awaitingSettlement());
    expect(awaited).toContain(waiting!.eventId);
    for (const done of [open, seen, closed, expired]) expect(awaited).not.toContain(done!.eventId);
  });

  test("money by capability, payee and day, settled or not", async () => {
    const dear = { ...quoteOf("0.030000") };
    await world.append(
      intent("spend", at("00:00:00", "2026-10-08")),
      intent("spend", at("23:59:59", "2026-10-08"), { quote: dear }),
      intent("spend", at("13:00:00", "2026-10-08"), { quote: { ...quoteOf("0.001000"), pay_to: "0xElse" } }),
      intent("other", at("12:00:00", "2026-10-08")),
      intent("spend", at("00:00:00", "2026-10-09")),
    );
    await world.ingest.pass();
    const spent = (await memory.spentOn("2026-10-08")).sort((a, b) => Number(a.micro - b.micro));
    const of = (name: string) => ({ cap: capOf(name), host: `${name}.example` });
    expect(spent).toEqual([
      { ...of("spend"), payTo: "0xElse", micro: 1_000n },
      { ...of("other"), payTo: PAY_TO, micro: 20_000n },
      { ...of("spend"), payTo: PAY_TO, micro: 50_000n },
    ]);
    expect(await memory.spentOn("2026-10-07")).toEqual([]);
  });
});

function quoteOf(price: string) {
  return {
    ...{ price, amount_atomic: price.replace(/^0\.0*/, ""), asset: "0xasset", network: "eip155:8453", pay_to: PAY_TO },
    ...{ max_timeout_s: 60, x402_version: 1 },
  };
}
