import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sql } from "../../../infra/lake/sql.ts";
import { listingFacts } from "../../../pipelines/2-ingest/listing-facts.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import type { Defect } from "../../../pipelines/record/vocabulary.ts";
import { at, capOf, handshake, listing } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

const facts = (which: "changed" | "all") => world.lake.transaction((tx) => listingFacts(tx, which));
const graded = () => world.lake.run(sql("queries/news:graded"));

/** The same, made from what the planner and the volatile table say of everything. */
async function slowly() {
  const rows = new Map((await volatileRows(world.lake, new Map())).map((row) => [row.capability_id, row]));
  return (await createMemory(world.lake).listed()).map((one) => ({
    capability_id: one.cap,
    url: one.url,
    method: one.method,
    tool: one.tool,
    class: one.claims.class,
    description: one.claims.description,
    seller_controlled: one.sellerListing !== null,
    defects: (JSON.parse(rows.get(one.cap)?.defects ?? "[]") as Defect[]).map(({ defect, says }) => ({ defect, says })),
  }));
}

describe("listing facts", () => {
  test("of all are what planner and volatile table say, and of the changed only those with news", async () => {
    await world.append(
      listing("a", at("01:00:00"), { defects: [{ defect: "bad_entry", says: "an entry" }] }),
      listing("b", at("01:00:00"), { source: "catalogue", source_id: "b1", seller_controlled: false }),
      listing("c", at("01:00:00"), {}),
      handshake("a", at("02:00:00"), { differs: [{ defect: "price_differs", says: "dearer" }] }),
      handshake("alone", at("02:00:00")),
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
    );
    await world.ingest.pass();
    const { listed, unlisted } = await facts("changed");
    expect(listed.map((one) => one.capability_id)).toEqual([capOf("d")]);
    expect(unlisted).toEqual([capOf("b")]);
  });
});
