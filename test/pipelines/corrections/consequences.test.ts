import { verifyMessage } from "viem";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type SignedDispute, statementOf } from "../../../pipelines/corrections/dispute.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import type { GradeLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { capOf, correction, handshake, intent, later, listing, reinstated } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { figuresOf, history, openWorld, paidCall, SELLER, signedDispute, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(async () => {
  try {
    await world.prove();
  } finally {
    await world.close();
  }
});

const MINUTE = 60_000;
const START = "2026-11-05T00:00:00.000Z";
let n = 0;
/** An endpoint of its own with 40 blocks of a probe and a paid call each: 80 samples. */
async function seller(wrong?: (block: number) => boolean) {
  const name = `seller-${n++}`;
  const records = [listing(name, START), ...history(name, START, 40, wrong)];
  await world.append(...records);
  world.pass(MINUTE);
  await world.grade();
  await world.pipeline.writeVolatile();
  const of = (topic: string) => records.filter((one) => one.topic === topic).map((one) => one.eventId);
  // Of a paid call the intent comes first, then result and settlement.
  const paid = of("observations.paid").filter((_, i) => i % 3 === 0);
  return { name, probes: of("observations.free"), paid };
}

const grades = (leaves: readonly Leaf[]): GradeLeaf[] => leaves.filter((leaf) => leaf.kind === "grade");
const newest = (leaves: readonly Leaf[]): GradeLeaf[] => {
  const all = grades(leaves);
  return all.filter((leaf) => leaf.card.computed_at === all.at(-1)!.card.computed_at);
};

describe("a correction of some records", () => {
  test("shows before its leaf, then brings the letter that stood there without them, at once and next to it", async () => {
    const { name, paid } = await seller((block) => block >= 30 && block < 38);
    const before = await world.check(name);
    expect([before.band, before.sampleCount, before.withdrawnSince]).toEqual(["F", 80, 0]);
    world.pass(MINUTE);
    const said = await world.correct(name, { records: paid.slice(30, 38), fault: "wrong_checker" });
    // Not ingested, not graded: one turn of the volatile table.
    await world.pipeline.writeVolatile();
    const at_once = await world.check(name);
    expect([at_once.band, at_once.withdrawnSince, at_once.corrections?.length]).toEqual(["F", 8, 8]);
    expect(at_once.corrections?.[0]).toEqual({
      ...{ id: said[0]!.id, fault: "wrong_checker", says: "ours", issuedAt: said[0]!.issued_at },
      ...{ recordId: paid[30], gradeAt: null },
    });
    expect((await world.trustOf(name)).corrections).toEqual(at_once.corrections);
    await world.grade();
    const leaves = await world.leavesOf(name);
    const cards = newest(leaves);
    const group = leaves.slice(-(8 + cards.length));
    expect(group.map((leaf) => leaf.kind)).toEqual([...Array(8).fill("correction"), ...cards.map(() => "grade")]);
    expect(group.map((leaf) => leaf.index)).toEqual(group.map((_, i) => group[0]!.index + i));
    expect(new Set(group.map((leaf) => leaf.at)).size).toBe(1);
    const after = await world.check(name);
    // The F stood on what is withdrawn, so no hold keeps it.
    expect([after.band, after.sampleCount, after.withdrawnSince, after.flags]).toEqual([
      ...["B", 72, 0, expect.not.arrayContaining(["held_14d"])],
    ]);
    expect(after.corrections).toEqual(at_once.corrections);
  });

  test("from a fifth of its records on the letter is not shown any more, at all of them nothing is", async () => {
    const { name, paid, probes } = await seller();
    const all = [...paid, ...probes];
    let corrected = 0;
    const steps: [number, string, boolean, boolean][] = [
      [15, "B", false, false],
      [16, "UNRATED", true, false],
      [79, "UNRATED", true, false],
      [80, "UNRATED", true, true],
    ];
    for (const [many, band, withdrawn, nothing] of steps) {
      world.pass(MINUTE);
      await world.correct(name, { records: all.slice(corrected, many) });
      corrected = many;
      await world.pipeline.writeVolatile();
      const answer = await world.check(name);
      expect([answer.band, answer.sampleCount, answer.withdrawnSince]).toEqual([band, 80, many]);
      expect(answer.flags?.includes("records_withdrawn")).toBe(withdrawn);
      expect(answer.flags?.includes("stands_on_nothing")).toBe(nothing);
      expect([answer.tier === null, answer.composite === null]).toEqual([nothing, nothing]);
    }
    await world.grade();
    const after = await world.check(name);
    expect([after.sampleCount, after.withdrawnSince, after.corrections?.length]).toEqual([0, 0, 80]);
  });

  test("a handshake leaves liveness, a paid.intent leaves correctness", async () => {
    const { name, paid, probes } = await seller();
    const parts = async () => {
      const { components } = await world.check(name);
      return [components!.correctness.n_eff, components!.schema_conformance.n_eff];
    };
    const digest = async () => newest(await world.leavesOf(name))[0]!.inputs.digest;
    expect(await parts()).toEqual([40, 40]);
    const whole = await digest();
    world.pass(MINUTE);
    await world.correct(name, { records: [probes[3]!] });
    await world.grade();
    expect(await parts()).toEqual([40, 40]);
    const without = await digest();
    await world.correct(name, { records: [paid[3]!] });
    world.pass(MINUTE);
    await world.grade();
    expect(await parts()).toEqual([39, 39]);
    expect(new Set([whole, without, await digest()]).size).toBe(3);
  });
});

describe("a correction of every record", () => {
  test("leaves the UNRATED card that stands for all tiers; what is observed after it counts", async () => {
    const { name } = await seller();
    expect((await world.trustOf(name)).scorecards).toHaveLength(3);
    world.pass(MINUTE);
    const [all] = await world.correct(name);
    await world.grade();
    const { scorecards, corrections } = await world.trustOf(name);
    expect(scorecards).toMatchObject([
      { tier: "LIVENESS_VERIFIED", band: "UNRATED", composite: 0, components: null, sample_count: 0 },
    ]);
    expect(corrections).toMatchObject([{ id: all!.id, recordId: null }]);
    const answer = await world.check(name);
    expect([answer.band, answer.tier, answer.composite, answer.why]).toEqual([
      ...["UNRATED", null, null, "UNRATED: every record it stood on was withdrawn."],
    ]);
    // A record of before it that comes late is withdrawn as well; one of after it counts.
    await world.append(handshake(name, "2026-11-15T18:03:00.000Z"));
    await world.grade();
    expect((await world.check(name)).sampleCount).toBe(0);
    world.pass(MINUTE);
    await world.append(handshake(name, world.clock.now().toISOString()));
    world.pass(MINUTE);
    await world.grade();
    const seen = await world.check(name);
    expect([seen.sampleCount, seen.tier, seen.band]).toEqual([1, "LIVENESS_VERIFIED", "UNRATED"]);
  });

  test("taken back, the numbers come back bit for bit", async () => {
    const { name, paid } = await seller((block) => block % 9 === 0);
    const before = newest(await world.leavesOf(name));
    world.pass(MINUTE);
    const [all] = await world.correct(name);
    await world.grade();
    await expect(world.correct(name, { records: [paid[0]!] })).rejects.toThrow(`withdrawn already, by ${all!.id}`);
    await expect(world.correct(name)).rejects.toThrow("no record left that counts");
    world.pass(MINUTE);
    await world.reinstate(name, all!.id);
    await world.pipeline.writeVolatile();
    expect((await world.check(name)).corrections?.[0]?.says).toBe("ours (taken back: it was right)");
    await world.grade();
    const after = newest(await world.leavesOf(name));
    expect(after.map((leaf) => figuresOf(leaf.card))).toEqual(before.map((leaf) => figuresOf(leaf.card)));
    expect(after.map((leaf) => [leaf.inputs.digest, leaf.raw_band])).toEqual(
      before.map((leaf) => [leaf.inputs.digest, leaf.raw_band]),
    );
    expect((await world.leavesOf(name)).filter((leaf) => leaf.kind === "reinstated")).toHaveLength(1);
    await expect(world.reinstate(name, all!.id)).rejects.toThrow("taken back already");
  });
});

describe("who comes when", () => {
  test("a correction that is there before its record", async () => {
    const { name } = await seller();
    const late = handshake(name, "2026-11-15T18:30:00.000Z");
    await world.append(correction(name, world.clock.now().toISOString(), { id: "cor_early", record_id: late.eventId }));
    world.pass(MINUTE);
    await world.grade();
    expect((await world.check(name)).sampleCount).toBe(80);
    await world.append(late);
    world.pass(MINUTE);
    await world.grade();
    expect((await world.check(name)).sampleCount).toBe(80);
  });

  test("two operators at once: withdrawn once, and until both are taken back", async () => {
    const { name, paid } = await seller();
    const at = world.clock.now().toISOString();
    const twice = ["cor_a", "cor_b"].map((id) => correction(name, at, { id, record_id: paid[0]! }));
    await world.append(...twice, twice[0]!);
    const count = async () => {
      world.pass(MINUTE);
      await world.grade();
      return (await world.check(name)).sampleCount;
    };
    expect(await count()).toBe(79);
    expect((await world.trustOf(name)).corrections.map((one) => one.id)).toEqual(["cor_a", "cor_b"]);
    await world.append(reinstated(name, at, "cor_a"));
    expect(await count()).toBe(79);
    await world.append(reinstated(name, at, "cor_b"));
    expect(await count()).toBe(80);
  });

  test("endpoints in both partitions, each its own", async () => {
    const first = await seller();
    const there = partitionOf(capOf(first.name), PARTITIONS);
    while (partitionOf(capOf(`seller-${n}`), PARTITIONS) === there) n++;
    const both = [first, await seller()];
    world.pass(MINUTE);
    for (const [i, { name, paid }] of both.entries()) await world.correct(name, { records: paid.slice(0, i + 1) });
    await world.pipeline.writeVolatile();
    const since = async () => Promise.all(both.map(async ({ name }) => (await world.check(name)).withdrawnSince));
    expect(await since()).toEqual([1, 2]);
    await world.grade();
    const counts = await Promise.all(both.map(async ({ name }) => (await world.check(name)).sampleCount));
    expect([counts, await since()]).toEqual([
      [79, 78],
      [0, 0],
    ]);
  });

  test("what cannot be corrected is refused before anything is written", async () => {
    const { name, paid } = await seller();
    const stranger = intent("somebody-else", START).eventId;
    const { end } = await world.log.bounds("corrections", partitionOf(capOf(name), PARTITIONS));
    const part = paidCall(name, later(START, MINUTE))[1]!.eventId;
    await expect(world.correct("nobody")).rejects.toThrow("is not in the record");
    await expect(world.correct(name, { records: [paid[1]!, stranger] })).rejects.toThrow(`${stranger} is not in`);
    await expect(world.correct(name, { records: [] })).rejects.toThrow("name a record");
    await expect(world.correct(name, { fault: "theirs" })).rejects.toThrow("none of our faults");
    await expect(world.correct(name, { says: " " })).rejects.toThrow("say what was got wrong");
    await expect(world.correct(name, { says: "\ud800" })).rejects.toThrow("half a character");
    await expect(world.correct(name, { gradeAt: "2026-02-31T00:00:00.000Z" })).rejects.toThrow("expected a time");
    await expect(world.correct(name, { gradeAt: "2126-01-01T00:00:00Z" })).rejects.toThrow("still to come");
    await expect(world.correct(name, { records: [paid[5]!], gradeAt: "2026-11-05T00:00:00Z" })).rejects.toThrow(
      "did not stand on",
    );
    await expect(world.correct(name, { records: [part] })).rejects.toThrow(`name its paid.intent, ${paid[0]!}`);
    expect((await world.log.bounds("corrections", partitionOf(capOf(name), PARTITIONS))).end).toBe(end);
  });
});

describe("after a kill", () => {
  const told = async (name: string) => {
    const leaves = await world.leavesOf(name);
    const last = leaves.findLastIndex((leaf) => leaf.kind === "correction");
    return {
      kinds: leaves.slice(last, last + 2).map((leaf) => leaf.kind),
      count: (await world.check(name)).sampleCount,
    };
  };

  test.each<[string, (name: string) => Promise<void>]>([
    ["before the correction was ingested", async () => {}],
    ["after it was ingested", async () => world.ingest.pass().then(() => {})],
    [
      "when the run was about to be written",
      async () => {
        world.faults.failing.add("runs/");
        await expect(world.grade()).rejects.toThrow("injected");
      },
    ],
    [
      "when the leaves were staged",
      async () => {
        world.faults.failing.add("generation/");
        await expect(world.grade()).rejects.toThrow("injected");
      },
    ],
    [
      "when the generation was won and no tile written",
      async () => {
        world.faults.failing.add("tile/");
        await expect(world.grade()).rejects.toThrow("injected");
      },
    ],
  ])("%s, the next process publishes correction and card together", async (what, until) => {
    const { name, paid } = await seller();
    world.pass(MINUTE);
    await world.correct(name, { records: paid.slice(0, 5) });
    try {
      await until(name);
    } finally {
      world.faults.failing.clear();
    }
    // The last one has lost its lake as well, and builds it from the chain.
    await world.restart(what.includes("won"));
    world.pass(MINUTE);
    await world.grade();
    await world.pipeline.writeVolatile();
    expect(await told(name)).toEqual({ kinds: ["correction", "grade"], count: 75 });
  });
});

describe("a dispute", () => {
  test("changes no number, is flagged at once, and ends with a correction of the same record", async () => {
    const { name, paid } = await seller();
    const before = newest(await world.leavesOf(name))[0]!;
    const flagged = async () => (await world.check(name)).flags?.includes("disputed");
    world.pass(MINUTE);
    const id = await world.dispute(name, paid[7]!);
    await world.pipeline.writeVolatile();
    expect(await flagged()).toBe(true);
    const { disputes } = await world.trustOf(name);
    expect(disputes).toMatchObject([{ id, record_id: paid[7], pay_to: SELLER.address, says: "your check was wrong" }]);
    const receipt = disputes[0] as unknown as SignedDispute;
    const signed = {
      address: SELLER.address,
      message: statementOf(receipt),
      signature: receipt.signature as `0x${string}`,
    };
    expect(await verifyMessage(signed)).toBe(true);
    world.pass(86_400_000);
    await world.grade();
    const card = newest(await world.leavesOf(name))[0]!;
    expect([card.card.sample_count, card.inputs.digest]).toEqual([80, before.inputs.digest]);
    expect(card.card.flags).toContain("disputed");
    expect((await world.trustOf(name)).disputes).toEqual(disputes);
    // Another record's correction does not answer it.
    world.pass(MINUTE);
    await world.correct(name, { records: [paid[8]!] });
    await world.grade();
    expect(await flagged()).toBe(true);
    world.pass(MINUTE);
    const [answer] = await world.correct(name, { records: [paid[7]!] });
    await world.grade();
    expect([await flagged(), (await world.check(name)).sampleCount]).toEqual([false, 78]);
    // The correction was wrong: the seller's word stands again.
    world.pass(MINUTE);
    await world.reinstate(name, answer!.id);
    await world.grade();
    expect([await flagged(), (await world.check(name)).sampleCount]).toEqual([true, 79]);
  });

  test("over HTTP: recorded once, read back, shown before its leaf and in it", async () => {
    const name = `seller-${n++}`;
    await world.append(listing(name, START), handshake(name, START, { pay_to: SELLER.address }));
    await world.grade();
    await world.pipeline.writeVolatile();
    await world.follower.refresh();
    const signed = await signedDispute(name, world.clock.now());
    const post = () =>
      world.app.request(`/v1/trust/${capOf(name)}/disputes`, { method: "POST", body: JSON.stringify(signed) });
    const response = await post();
    const receipt = (await response.json()) as { dispute: Record<string, unknown>; partition: number; offset: number };
    expect([response.status, (await post()).status]).toEqual([201, 409]);
    expect(receipt.partition).toBe(partitionOf(capOf(name), PARTITIONS));
    await world.pipeline.writeVolatile();
    expect((await world.trustOf(name)).disputes).toEqual([receipt.dispute]);
    world.pass(MINUTE);
    await world.grade();
    const leaves = (await world.leavesOf(name)).filter((leaf) => leaf.kind === "dispute");
    expect(leaves).toMatchObject([{ body: receipt.dispute, position: receipt.offset }]);
    expect((await world.trustOf(name)).disputes).toEqual([receipt.dispute]);
    expect((await post()).status).toBe(409);
  });
});
