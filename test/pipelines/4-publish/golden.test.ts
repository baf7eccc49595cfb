import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { openCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { takeLines } from "../../../pipelines/4-publish/take-lines.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import { Leaf, type LeafKind } from "../../../pipelines/record/leaf.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { capOf, correction, header, JWKS, line, listing, PARTITIONS, SIGNERS, TRUST, World } from "./world.ts";

/** One of each leaf and a checkpoint under fixed keys: what is published once must read the same for good. */
const golden = (name: string): string => readFileSync(new URL(`./${name}`, import.meta.url), "utf8");
const DAY = "2026-11-21T01:00:00.000Z";

let world: World;
beforeAll(async () => {
  world = await World.open();
  const publisher = world.publisher();
  await publisher.publishKeys(JWKS);
  await publishListings(publisher, [
    listing("a", { tool: "look_up", defects: [{ defect: "bad_network", says: "not a CAIP-2 id", seenAt: DAY }] }),
  ]);
  // As cards were published before leaves held their tables of related parties: a run that names this one is not taken now.
  const run = { ...header(DAY, 5), kin_sha256: sha256hex("kin") };
  const lines = [line("a", DAY, ["B", { band: "UNRATED", tier: "LIVENESS_VERIFIED" }])];
  const before = { fold: await publisher.current(), generation: null, at: world.clock.now() };
  const context = { partitions: PARTITIONS, cardSigner: SIGNERS.cards, onSigned: () => undefined };
  const { groups } = await takeLines(before, run, lines, [correction("a", "c1")], context);
  await publisher.publishLeaves(groups.flat());
  await publisher.publishLeaves([
    { kind: "dispute", capability_id: capOf("a"), body: { id: "d1", says: "we delivered" } },
    { kind: "reinstated", capability_id: capOf("a"), body: { correction: "c1", says: "it was right after all" } },
  ]);
  await publisher.buildIndex();
  world.clock.set("2026-11-21T04:00:10.000Z");
  await publishListings(publisher, [], [capOf("a")]);
  const schedule = { salt_hash: "1".repeat(64), covered_root: "2".repeat(64), covered: 1 };
  await publisher.publishSchedule({
    day: "2026-11-21",
    ...schedule,
    opens: { day: "2026-11-19", salt: "3".repeat(64) },
  });
});
afterAll(() => world.close());

describe("golden record", () => {
  it("has the leaves of the file, byte for byte, and each reads as its kind", async () => {
    const head = (await readCheckpoint(world.publicStore, TRUST))!;
    const lines: string[] = [];
    for await (const { bytes } of (await RecordReader.open(world.publicStore, head)).leaves()) lines.push(`${bytes}\n`);
    expect(lines.join("")).toBe(golden("leaves.golden.ndjson"));
    const kinds = lines.map((text) => Leaf.parse(JSON.parse(text)).kind);
    const every: LeafKind[] = ["keys", "listing", "correction", "grade", "grade", "dispute", "reinstated", "delisting"];
    expect(kinds).toEqual([...every, "index", "schedule"]);
  });

  it("has the checkpoint of the file", async () => {
    const object = await world.publicStore.get("checkpoint");
    expect(Buffer.from(object!.bytes).toString("utf8")).toBe(golden("checkpoint.golden.txt"));
    expect(openCheckpoint(Buffer.from(golden("checkpoint.golden.txt")), TRUST).size).toBe(10);
  });

  it("proves itself", () => proveRecord(world.publicStore, { trust: TRUST, atRest: true }));

  it("is signed under the fixed keys", () => {
    expect(golden("leaves.golden.ndjson")).toContain(SIGNERS.cards.kid);
  });
});
