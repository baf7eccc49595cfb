import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sql } from "../../../infra/lake/sql.ts";
import { createBlankClaims, readCurrentListings } from "../../../pipelines/1-observe/probe/unplanned.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { listingFacts, volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import type { Defect } from "../../../pipelines/record/vocabulary.ts";
import { at, capOf, delisting, handshake, listing, OFFER, TERMS, urlOf } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

const facts = (which: "changed" | "all") => world.lake.transaction((tx) => listingFacts(tx, which));
const graded = () => world.lake.run(sql("queries/news:graded"));

const own = { source: "https://seller.example/.well-known/x402", seller_controlled: true };
const LISTED = { network: OFFER.network, asset: OFFER.asset, price: OFFER.price, pay_to: OFFER.pay_to };
const bad = (name: string) => ({ defects: [{ defect: name, says: name }] });

const describedClaims = (name: string, description: string) => ({
  ...createBlankClaims(urlOf(name), null),
  description,
});

/** The same of what answered with a 402, made from what the planner and the volatile table say of everything. */
async function slowly() {
  const rows = new Map((await volatileRows(world.lake, new Map())).map((row) => [row.capability_id, row]));
  const asked = (cap: string) => rows.get(cap)!.asked_for_payment > 0;
  return (await createMemory(world.lake).listed())
    .filter((one) => asked(one.cap))
    .map((one) => ({
      capability_id: one.cap,
      url: one.url,
      method: one.method,
      tool: one.tool,
      class: one.claims.class,
      description: one.claims.description,
      seller_controlled: one.sellerListing !== null,
      defects: (JSON.parse(rows.get(one.cap)?.defects ?? "[]") as Defect[]).map(({ defect, says }) => ({
        defect,
        says,
      })),
      offers: [LISTED],
    }));
}

describe("listing facts", () => {
  test("of all are what planner and volatile table say, and of the changed only those with news", async () => {
    await world.append(
      listing("a", at("01:00:00"), { ...own, ...bad("bad_entry") }),
      listing("b", at("01:00:00"), { source: "catalogue", source_id: "b1", seller_controlled: false }),
      listing("c", at("01:00:00"), {}),
      handshake("a", at("02:00:00"), { differs: [{ defect: "price_differs", says: "dearer" }] }),
      ...["alone", "b", "c"].map((name) => handshake(name, at("02:00:00"))),
    );
    await world.ingest.pass();
    const all = await facts("all");
    expect(all.listed).toEqual(await slowly());
    expect(all.listed.map((one) => one.capability_id).sort()).toEqual(["a", "b", "c"].map(capOf).sort());
    expect(all.listed.find((one) => one.capability_id === capOf("a"))!.defects.length).toBeGreaterThan(1);
    expect((await facts("changed")).listed).toEqual(all.listed);

    await graded();
    expect(await facts("changed")).toEqual({ listed: [], unlisted: [] });
    await world.append(handshake("c", at("03:00:00")));
    await world.ingest.pass();
    expect((await facts("changed")).listed).toEqual((await slowly()).filter((one) => one.capability_id === capOf("c")));
  });

  test("a listing that moved to another address leaves its old one unlisted, though nothing was said of that", async () => {
    await graded();
    await world.append(
      listing("d", at("04:00:00"), { source: "catalogue", source_id: "b1", seller_controlled: false }),
      handshake("d", at("04:00:00")),
    );
    await world.ingest.pass();
    const { listed, unlisted } = await facts("changed");
    expect(listed.map((one) => one.capability_id)).toEqual([capOf("d")]);
    expect(unlisted).toEqual([capOf("b")]);
  });

  /** Codes of the leaf and of the volatile row, and whether the market holds it. */
  async function factsOf(name: string) {
    await world.ingest.pass();
    const names = (defects: readonly { defect: string }[]) => defects.map(({ defect }) => defect);
    const leaf = (await facts("all")).listed.find((one) => one.capability_id === capOf(name));
    const row = (await volatileRows(world.lake, new Map())).find((one) => one.capability_id === capOf(name))!;
    const shown = names(JSON.parse(row.defects) as Defect[]);
    if (leaf) expect(names(leaf.defects)).toEqual(shown);
    return { listed: leaf !== undefined, shown };
  }

  test("no row of a catalogue replaces or clears what the seller's own listing says, nor adds to it", async () => {
    await world.append(listing("own", at("01:00:00"), { ...own, ...bad("bad_asset") }));
    expect(await factsOf("own")).toEqual({ listed: true, shown: ["bad_asset"] });
    await world.append(listing("own", at("02:00:00"), { source: "clean" }));
    await world.append(listing("own", at("03:00:00"), { source: "wrong", ...bad("bad_amount") }));
    expect(await factsOf("own")).toEqual({ listed: true, shown: ["bad_asset"] });
    // The seller mends it: that is what counts.
    await world.append(listing("own", at("04:00:00"), own));
    expect(await factsOf("own")).toEqual({ listed: true, shown: [] });
  });

  test("a catalogue alone brings nothing into the market; its word stands until the endpoint answers with a 402", async () => {
    await world.append(listing("flood", at("01:00:00"), bad("bad_amount")));
    await world.append(handshake("flood", at("01:30:00"), { state: "free", terms: null, price: null, pay_to: null }));
    expect(await factsOf("flood")).toEqual({ listed: false, shown: ["bad_amount"] });
    const terms = { ...TERMS, defects: [] };
    await world.append(
      handshake("flood", at("02:00:00"), { terms }),
      listing("flood", at("02:00:00"), { source: "402" }),
    );
    await world.append(listing("flood", at("03:00:00"), bad("bad_pay_to")));
    expect(await factsOf("flood")).toEqual({ listed: true, shown: [] });
    // What it answers later takes it out no more.
    await world.append(handshake("flood", at("04:00:00"), { state: "status", status: 500, terms: null }));
    expect(await factsOf("flood")).toEqual({ listed: true, shown: [] });
  });

  test("a 402 of its own lists an endpoint only if its seller never did, and speaks beside another listing", async () => {
    const speaking = async (name: string) =>
      (await createMemory(world.lake).listed()).find((one) => one.cap === capOf(name))?.claims.description;
    const of402 = (name: string, time: string) =>
      listing(name, at(time), { source: "402", seller_controlled: false, claims: describedClaims(name, "by its 402") });
    await world.append(handshake("only", at("01:00:00")), of402("only", "01:00:00"));
    expect(await factsOf("only")).toEqual({ listed: true, shown: expect.anything() });
    await world.append(
      listing("both", at("01:00:00"), { seller_controlled: true, claims: describedClaims("both", "by its seller") }),
      ...[listing("third", at("01:00:00")), handshake("third", at("02:00:00")), of402("third", "02:00:00")],
      handshake("both", at("02:00:00")),
      of402("both", "02:00:00"),
    );
    expect(await factsOf("both")).toMatchObject({ listed: true });
    expect(await speaking("both")).toBe("by its seller");
    await world.append(delisting("both", at("03:00:00")), delisting("third", at("03:00:00")));
    expect(await factsOf("both")).toMatchObject({ listed: false });
    expect(await factsOf("third")).toMatchObject({ listed: true });
    expect(await readCurrentListings(world.lake, [capOf("both"), capOf("only")])).toHaveProperty("size", 1);
    await world.append(of402("both", "04:00:00"));
    expect([await factsOf("both"), await speaking("both")]).toMatchObject([{ listed: false }, undefined]);
    await world.append(listing("both", at("05:00:00"), {}));
    expect(await factsOf("both")).toMatchObject({ listed: true });
  });

  async function offersOf(name: string) {
    await world.ingest.pass();
    return (await facts("all")).listed.find((one) => one.capability_id === capOf(name))?.offers;
  }

  test("offers are those of the newest 402, each once; none before it", async () => {
    await world.append(listing("pays", at("01:00:00"), own));
    expect(await offersOf("pays")).toEqual([]);
    const polygon = { ...OFFER, network: "eip155:137", asset: "0xother", price: null };
    const offers = [OFFER, polygon, { ...OFFER, scheme: "upto" }];
    await world.append(handshake("pays", at("02:00:00"), { terms: { ...TERMS, offers } }));
    const second = { ...LISTED, network: "eip155:137", asset: "0xother", price: null };
    expect(await offersOf("pays")).toEqual([LISTED, second]);
    const many = Array.from({ length: 40 }, (_, n) => ({ ...OFFER, network: `eip155:${n + 1}` }));
    await world.append(handshake("pays", at("03:00:00"), { terms: { ...TERMS, offers: many } }));
    expect(await offersOf("pays")).toHaveLength(16);
    // A 500 offers nothing, and what it offered before stands.
    await world.append(handshake("pays", at("04:00:00"), { state: "status", status: 500, terms: null }));
    expect(await offersOf("pays")).toHaveLength(16);
  });

  test("a price or a payee that changes from call to call makes no leaf for each call", async () => {
    await world.append(listing("moves", at("01:00:00"), own));
    const after: unknown[] = [];
    for (const n of [1, 2, 3, 4, 5, 6]) {
      const price = `0.02000${n}`;
      const offers = [{ ...OFFER, price, pay_to: `0x${String(n).repeat(40)}` }];
      await world.append(handshake("moves", at(`0${n + 1}:00:00`), { price, terms: { ...TERMS, offers } }));
      const [offer] = (await offersOf("moves"))!;
      after.push([offer!.price, offer!.pay_to]);
    }
    const payee = (n: number) => `0x${String(n).repeat(40)}`;
    const changing = [1, 2, 3].map((n) => [`0.02000${n}`, payee(n)]);
    expect(after).toEqual([...changing, [null, payee(4)], [null, null], [null, null]]);
  });

  test("what no source names any more says nothing", async () => {
    await world.append(listing("left", at("01:00:00"), bad("bad_amount")), delisting("left", at("02:00:00")));
    expect(await factsOf("left")).toEqual({ listed: false, shown: [] });
  });
});
