import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { writeRun } from "../../../pipelines/4-publish/runs.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { cardToken, header, JWKS, line, listing, TRUST, World } from "./world.ts";

const DAY = "2026-11-21T04:00:00.000Z";

let world: World;
beforeEach(async () => {
  world = await World.open();
});
afterEach(() => world.close());

describe("a first publication", () => {
  it("is a record that proves itself", async () => {
    const publisher = world.publisher();
    await publisher.publishKeys(JWKS);
    await publisher.publishListings([listing("a"), listing("b")]);
    const n = await writeRun(world.privateStore, header(DAY, 5), [line("a", DAY, ["B"]), line("b", DAY, ["UNRATED"])]);
    expect(n).toBe(0);
    const [result] = await publisher.takeNewRuns();
    expect(result).toMatchObject({ n: 0, taken: true, cards: 2, leaves: 2, deferred: [], stale: 0 });
    await publisher.buildIndex();
    await publisher.publishSchedule({ day: "2026-11-22", salt_hash: "00", covered_root: "00", covered: 2 });
    const { leaves, checkpoint } = await proveRecord(world.publicStore, {
      trust: TRUST,
      settled: true,
      nothingElse: false,
      expected: [cardToken("a", DAY), cardToken("b", DAY)],
    });
    expect(leaves.map((leaf) => leaf.kind)).toEqual([
      "keys",
      "listing",
      "listing",
      "grade",
      "grade",
      "schedule",
      "index",
    ]);
    expect(checkpoint?.size).toBe(7);
  });
});
