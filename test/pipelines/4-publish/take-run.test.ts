import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import type { Store } from "../../../infra/store/store.ts";
import { DueDays } from "../../../pipelines/4-publish/due.ts";
import { BadPrivateObject } from "../../../pipelines/4-publish/generation.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { readRun, runKey, writeRun } from "../../../pipelines/4-publish/runs.ts";
import type { CorrectionDraft } from "../../../pipelines/4-publish/take-lines.ts";
import type { RunResult } from "../../../pipelines/4-publish/take-run.ts";
import { headlineOf } from "../../../pipelines/published/caps.ts";
import type { SignedCard } from "../../../pipelines/record/card.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { Faults } from "./faults.ts";
import { type CardSpec, capOf, correction, header, line, NEXT_CARDS, rotated, SIGNERS, TRUST, World } from "./world.ts";

const START = "2026-11-01";
let world: World;
let publisher: Publisher;
let next = 0;

beforeEach(async () => {
  ({ world, publisher } = await World.begun(START));
  next = 0;
});
afterEach(() => world.close());

type Specs = (CardSpec | CardSpec["band"])[];

/** A run of endpoint a, `day` days after the start, at this hour; the clock moves there. */
async function take(day: number, specs: Specs, hour = 6, corrections: CorrectionDraft[] = []): Promise<RunResult> {
  const now = `${addDays(START, day)}T${String(hour).padStart(2, "0")}:00:00.000Z`;
  world.clock.set(now);
  return publisher.takeRun({
    header: header(now, ++next),
    lines: [line("a", now, specs, `${now}`)],
    drafts: corrections,
  });
}

const capA = () => publisher.fold.caps.get(capOf("a"))!;
const cardA = () => JSON.parse(headlineOf(capA())!.text) as SignedCard;
const proven = () => proveRecord(world.publicStore, { trust: TRUST, atRest: true });

async function grades(): Promise<GradeLeaf[]> {
  const { leaves } = await proven();
  return leaves.filter((leaf) => leaf.kind === "grade");
}

describe("the hold", () => {
  it("lets a letter down at once and up after 14 clean days", async () => {
    await take(0, ["B"]);
    await take(1, ["D"]);
    expect(cardA()).toMatchObject({ band: "D", flags: [] });
    await take(2, ["A"]);
    expect(cardA()).toMatchObject({ band: "D", flags: ["held_14d"] });
    expect(headlineOf(capA())?.why).toBe(
      "D: a worse letter of the last 14 days stands until 16 November 2026 at least; what it does now would earn A.",
    );
    await take(14, ["A"]);
    expect(cardA().band).toBe("D");
    await take(15, ["A"]);
    expect(cardA()).toMatchObject({ band: "A", flags: [] });
    expect((await grades()).map((leaf) => leaf.raw_band + leaf.card.band).join(" ")).toBe("BB DD AD AD AA");
  });

  it("runs a letter on over days without a leaf", async () => {
    await take(0, ["F"]);
    await take(20, ["A"]);
    expect(cardA().band).toBe("F");
    expect(headlineOf(capA())?.why).toContain("stands until 4 December 2026 at least");
  });

  it("never lets another tier be better than the headline, and leaves a worse one alone", async () => {
    const delivery = (band: CardSpec["band"]): CardSpec => ({ band, tier: "DELIVERY_VERIFIED" });
    await take(0, ["D", delivery("B")]);
    expect(capA().cards.map((card) => card.band)).toEqual(["D", "D"]);
    await take(1, ["A", delivery("F"), { band: "UNRATED", tier: "LIVENESS_VERIFIED" }]);
    expect(capA().cards.map((card) => card.band)).toEqual(["D", "F", "UNRATED"]);
    const { leaves } = await proven();
    const cards = capA().cards.map(({ leaf }) => (leaves[leaf] as GradeLeaf).card);
    expect(cards.map(({ flags }) => flags)).toEqual([["held_14d"], [], []]);
  });

  it("skips UNRATED days, and holds nothing down to UNRATED", async () => {
    await take(0, ["UNRATED"]);
    await take(1, ["A"]);
    expect(cardA().band).toBe("A");
    await take(2, ["UNRATED"]);
    expect(cardA().band).toBe("UNRATED");
    await take(3, ["B"]);
    expect(cardA().band).toBe("B");
  });

  it("puts held_14d among the flags in the order of the vocabulary", async () => {
    await take(0, ["D"]);
    await take(1, [{ band: "B", flags: ["refunded", "streaky"] }]);
    expect(cardA().flags).toEqual(["refunded", "held_14d", "streaky"]);
  });

  it("skips days that stood on withdrawn records, and counts them again when the correction is taken back", async () => {
    await take(0, ["F"]);
    await take(1, ["A"]);
    expect(cardA().band).toBe("F");
    const result = await take(1, ["A"], 9, [correction("a", "c1")]);
    expect(result).toMatchObject({ cards: 1, leaves: 2 });
    expect(cardA()).toMatchObject({ band: "A", flags: [] });
    const back: CorrectionDraft = { kind: "reinstated", capability_id: capOf("a"), body: { correction: "c1" } };
    await take(2, ["A"], 6, [back]);
    expect(cardA().band).toBe("F");
    await proven();
  });

  it("skips only the days from the corrected grade on", async () => {
    await take(0, ["D"]);
    await take(1, ["F"]);
    const since = { record_id: "rec_1", grade_at: "2026-11-02T06:00:00.000Z" };
    await take(2, ["A"], 6, [correction("a", "c1", since)]);
    expect(cardA().band).toBe("D");
  });
});

describe("the publish rule", () => {
  it("says nothing that is published already, also when the same run comes again from another process", async () => {
    const now = `${START}T06:00:00.000Z`;
    const run = { header: header(now, 1), lines: [line("a", now, ["B"])] };
    world.clock.set(now);
    expect(await publisher.takeRun(run)).toMatchObject({ cards: 1 });
    expect(await publisher.takeRun(run)).toMatchObject({ taken: true, cards: 0, leaves: 0 });
    expect(await world.publisher().takeRun(run)).toMatchObject({ taken: true, cards: 0, leaves: 0 });
    expect(await world.metrics.text()).toContain("touchstone_cards_signed_total 1");
  });

  it("publishes a change once a UTC day, and bad news at once", async () => {
    await take(0, ["C"]);
    expect(await take(0, [{ band: "C", flags: ["streaky"] }], 7)).toMatchObject({ cards: 1 });
    expect(await take(0, [{ band: "C", flags: ["refunded"] }], 8)).toMatchObject({ cards: 0 });
    expect(await take(0, ["D"], 9)).toMatchObject({ cards: 1 });
    // The worse letter did not use up the day, and what did use it up is still known to a publisher that starts now.
    publisher = world.publisher();
    expect(await take(0, ["D"], 10)).toMatchObject({ cards: 0 });
    expect(await take(0, [{ band: "D", flags: ["refunded"] }], 11)).toMatchObject({ cards: 0 });
    expect(await take(1, [{ band: "D", flags: ["refunded"] }])).toMatchObject({ cards: 1 });
  });

  it("publishes for each 0.01 line under a lower bound, and not in between", async () => {
    await take(0, [{ band: "B", lower: 0.901 }]);
    expect(await take(1, [{ band: "B", lower: 0.909 }])).toMatchObject({ cards: 0 });
    expect(await take(2, [{ band: "B", lower: 0.91 }])).toMatchObject({ cards: 1 });
  });

  it("publishes weekly, on a day that is named", async () => {
    await take(0, ["B"]);
    expect(await take(6, ["B"])).toMatchObject({ cards: 0 });
    const days = new DueDays(publisher.fold);
    expect(days.findDueEndpoints(addDays(START, 6))).toEqual([]);
    expect(days.findDueEndpoints(addDays(START, 7))).toEqual([capOf("a")]);
    expect(await take(7, ["B"])).toMatchObject({ cards: 1 });
  });

  it("names a held endpoint on the day on which its letter may rise", async () => {
    await take(0, ["D"]);
    await take(1, ["B"]);
    await take(8, ["B"]);
    const days = new DueDays(publisher.fold);
    expect(days.findDueEndpoints(addDays(START, 13))).toEqual([]);
    expect(days.findDueEndpoints(addDays(START, 14))).toEqual([capOf("a")]);
    const other = world.publisher();
    await other.current();
    expect(new DueDays(other.fold).findDueEndpoints(addDays(START, 14))).toEqual([capOf("a")]);
  });
});

describe("corrections", () => {
  it("stand before the cards that follow from them, in one generation", async () => {
    await take(0, ["B"]);
    await take(0, ["B"], 7, [correction("a", "c1")]);
    const { leaves } = await proven();
    expect(leaves.slice(-2).map((leaf) => leaf.kind)).toEqual(["correction", "grade"]);
    expect(leaves.at(-1)?.at).toBe(leaves.at(-2)?.at);
  });

  it("are published alone where the run changed no card, and once", async () => {
    await take(0, ["B"], 6, [correction("b", "c1")]);
    await take(1, ["B"], 6, [correction("b", "c1")]);
    const { leaves } = await proven();
    expect(leaves.filter((leaf) => leaf.kind === "correction")).toHaveLength(1);
  });

  it("bring their consequence at the next run when they were published alone", async () => {
    await take(0, ["B"]);
    await publisher.publishLeaves([correction("a", "c1")]);
    expect(await take(0, ["B"], 8)).toMatchObject({ cards: 1 });
    expect(await take(0, ["B"], 9)).toMatchObject({ cards: 0 });
  });
});

describe("a grader that was paused", () => {
  const at = (hour: number) => `${START}T${String(hour).padStart(2, "0")}:00:00.000Z`;
  const runAt = (hour: number, position: number, band: "A" | "F") => ({
    header: header(at(hour), position, { n: hour }),
    lines: [line("a", at(hour), [band], band)],
  });

  it("cannot put an old A over a new F, whoever takes its run", async () => {
    world.clock.set(at(12));
    await publisher.takeRun(runAt(10, 50, "F"));
    expect(await publisher.takeRun(runAt(11, 40, "A"))).toMatchObject({
      taken: false,
      reason: expect.stringContaining("behind"),
    });
    expect(await world.publisher().takeRun(runAt(11, 40, "A"))).toMatchObject({ taken: false, cards: 0 });
    expect(cardA().band).toBe("F");
  });

  it("is refused after a run that changed nothing, too", async () => {
    world.clock.set(at(12));
    await publisher.takeRun(runAt(9, 30, "F"));
    await publisher.takeRun({ header: header(at(10), 50), lines: [] });
    expect((await publisher.takeRun(runAt(11, 40, "A"))).taken).toBe(false);
  });

  it("loses line by line where only the log of leaves knows better", async () => {
    world.clock.set(at(12));
    await publisher.takeRun(runAt(10, 50, "F"));
    const older = runAt(9, 50, "A");
    expect(await publisher.takeRun(older)).toMatchObject({ taken: true, cards: 0, stale: 1 });
  });

  it.each([
    ["at the moment of", 10],
    ["before", 9],
  ])("or whose clock is behind hears of a line %s the published cards, if it says something new", async (_, hour) => {
    world.clock.set(at(12));
    const refused: string[] = [];
    const write = ({ header: { n: _n, ...rest }, lines }: ReturnType<typeof runAt>) =>
      writeRun(world.privateStore, rest, lines);
    const takeNew = () => publisher.takeNewRuns(async ({ n, reason }) => refused.push(`${n}: ${reason}`));
    await write(runAt(10, 50, "A"));
    // The same once more, as another owner says it who was given the partition.
    await write(runAt(hour, 50, "A"));
    await takeNew();
    expect(refused).toEqual([]);
    await write(runAt(hour, 50, "F"));
    expect(await takeNew()).toMatchObject([{ taken: true, cards: 0, stale: 1 }]);
    expect(refused).toEqual([
      expect.stringMatching(/^2: its moment is not past that of published cards, of 1 endpoints/),
    ]);
    await write(runAt(11, 50, "F"));
    expect(await takeNew()).toMatchObject([{ taken: true, cards: 1, stale: 0 }]);
    expect((await grades()).map((leaf) => leaf.card.band)).toEqual(["A", "F"]);
  });

  it("and whose clock is ahead of the publisher's is refused, and later runs of the right time are not stale", async () => {
    let chainAt = at(12);
    const clock = { ...systemClock, now: () => world.clock.now() };
    const chainTime = async () => ({ newest: new Date(chainAt), fixedBlockTime: true });
    const real = world.publisher({ clock, chainTime });
    const take = (now: string, position: number, band: "F" | "UNRATED") =>
      real.takeRun({ header: header(now, position), lines: [line("a", now, [band], now)] });
    world.clock.set(at(12));
    const nextYear = "2027-11-01T12:00:00.000Z";
    await take(at(12), 50, "F");
    expect(await take(nextYear, 51, "UNRATED")).toMatchObject({
      taken: false,
      reason: expect.stringContaining("ahead"),
    });
    // Clocks of two machines may differ by 30 s.
    expect(await take(`${START}T12:00:30.000Z`, 52, "F")).toMatchObject({ taken: true });
    world.clock.set(at(13));
    chainAt = at(13);
    expect(await take(at(13), 53, "UNRATED")).toMatchObject({ taken: true, cards: 1, stale: 0 });
    expect(headlineOf(real.fold.caps.get(capOf("a"))!)?.band).toBe("UNRATED");
  });

  it("is not refused for its time by a publisher whose own clock is behind: that one publishes nothing", async () => {
    const clock = { ...systemClock, now: () => world.clock.now() };
    const chainTime = async () => ({ newest: new Date(at(12)), fixedBlockTime: true });
    const real = world.publisher({ clock, chainTime });
    world.clock.set(at(10));
    await expect(real.takeRun(runAt(12, 50, "F"))).rejects.toThrow("ahead of our clock");
    world.clock.set(at(12));
    expect(await real.takeRun(runAt(12, 50, "F"))).toMatchObject({ taken: true, cards: 1 });
  });

  it("of another log, or of other partitions: refused, and compared only where it speaks", async () => {
    world.clock.set(at(12));
    await publisher.takeRun(runAt(10, 50, "F"));
    const other = { ...runAt(11, 60, "A"), header: header(at(11), 60, { log: "log-2" }) };
    expect(await publisher.takeRun(other)).toMatchObject({ taken: false, reason: expect.stringContaining("log-2") });
    const mine = header(at(11), 60, { positions: { "observations.free": { "9": 1 } } });
    expect((await publisher.takeRun({ header: mine, lines: [] })).taken).toBe(true);
  });
});

describe("a cards key that was rotated", () => {
  const at = (hour: number) => `${START}T${String(hour).padStart(2, "0")}:00:00.000Z`;
  const retired = [{ signer: SIGNERS.cards, until: new Date(at(8)) }];
  const signedBy = async () => (await grades()).map((leaf) => leaf.card.signing_key_id);

  it("signs what was graded while it was valid, and a run of which none of our keys was valid waits", async () => {
    await writeRun(world.privateStore, header(at(6), 1), [line("a", at(6), ["B"])]);
    world.clock.set(at(7));
    await publisher.publishKeys(rotated(at(8)));
    world.clock.set(at(9));
    // Its operator has taken the old key's file away.
    const withoutOld = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS } });
    expect(await withoutOld.takeNewRuns()).toMatchObject([
      { n: 0, taken: false, reason: expect.stringContaining(`none of our cards keys is valid at ${at(6)}`) },
    ]);
    const withBoth = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS, retired } });
    expect(await withBoth.takeNewRuns()).toMatchObject([{ n: 0, taken: true, cards: 1 }]);
    expect(await signedBy()).toEqual([SIGNERS.cards.kid]);
  });

  it("signs no card after it retired, in a process that was not restarted", async () => {
    await publisher.publishKeys(rotated(at(8)));
    await writeRun(world.privateStore, header(at(9), 1), [line("a", at(9), ["B"])]);
    world.clock.set(at(9));
    expect(await publisher.takeNewRuns()).toMatchObject([{ taken: false, cards: 0 }]);
    await expect(publisher.buildIndex()).resolves.toBeUndefined();
    await publisher.publishLeaves([correction("a", "c1")]);
    await expect(publisher.buildIndex()).rejects.toThrow(`valid at ${at(9)}`);
    const restarted = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS, retired } });
    expect(await restarted.takeNewRuns()).toMatchObject([{ taken: true, cards: 1 }]);
    expect(await signedBy()).toEqual([NEXT_CARDS.kid]);
  });
});

describe("run objects", () => {
  const now = `${START}T06:00:00.000Z`;

  it("get dense numbers, also from two writers at once, and come back as they went in", async () => {
    const write = (name: string) => writeRun(world.privateStore, header(now, 1), [line(name, now, ["B"])]);
    const numbers = await Promise.all([write("a"), write("b"), write("c")]);
    expect(numbers.sort()).toEqual([0, 1, 2]);
    expect(await write("d")).toBe(3);
    const run = await readRun(world.privateStore, 3);
    expect(run).toMatchObject({ header: header(now, 1, { n: 3 }), lines: [line("d", now, ["B"])] });
    expect(await readRun(world.privateStore, 4)).toBeNull();
  });

  it.each<[string, Specs]>([
    ["no headline", [{ band: "B", headline: false }]],
    ["two headlines", ["B", { band: "B", tier: "LIVENESS_VERIFIED", headline: true }]],
    [
      "the shallow card first",
      [
        { band: "B", tier: "LIVENESS_VERIFIED" },
        { band: "B", headline: false },
      ],
    ],
  ])("with %s are not written, and not taken", async (_, specs) => {
    const lines = [line("a", now, specs)];
    await expect(writeRun(world.privateStore, header(now, 1), lines)).rejects.toThrow(capOf("a"));
    world.clock.set(now);
    await expect(publisher.takeRun({ header: header(now, 1), lines })).rejects.toThrow(capOf("a"));
  });

  it("that cannot be read are left out, and those after them are taken", async () => {
    await world.privateStore.create(runKey(0), Buffer.from("torn"));
    await writeRun(world.privateStore, header(now, 1), [line("a", now, ["B"])]);
    world.clock.set(now);
    const unreadable = { n: 0, taken: false, reason: expect.stringContaining("runs/00000000000000000000") };
    expect(await publisher.takeNewRuns()).toMatchObject([unreadable, { n: 1, taken: true, cards: 1 }]);
    expect(await publisher.takeNewRuns()).toEqual([]);
    expect(await world.metrics.text()).toContain("touchstone_runs_unreadable_total 1");
    await writeRun(world.privateStore, header(now, 2), [line("b", now, ["B"])]);
    expect(await world.publisher().takeNewRuns()).toMatchObject([{ n: 2, cards: 1 }]);
  });

  it("whose bytes change on the way are read again: any flipped bit shows", async () => {
    await writeRun(world.privateStore, header(now, 1), [line("a", now, ["B"])]);
    world.clock.set(now);
    const { bytes } = (await world.privateStore.get(runKey(0)))!;
    let reads = 0;
    for (let bit = 0; bit < bytes.length * 8; bit += 7) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3]! ^= 1 << (bit & 7);
      const once = async (key: string) => {
        const object = await world.privateStore.get(key);
        return object && key === runKey(0) && reads++ % 2 === 0 ? { ...object, bytes: flipped } : object;
      };
      const read = () => readRun({ ...new Faults().wrap(world.privateStore, ""), get: once }, 0);
      const first = await read().catch((error: unknown) => error);
      // A bit of the frame's header may mean nothing: then it reads as what it is.
      if (!(first instanceof BadPrivateObject)) expect(first).toEqual(await readRun(world.privateStore, 0));
      else expect(await read()).toMatchObject({ lines: [{ cap: capOf("a") }] });
      reads = 0;
    }
    const flipped = Buffer.from(bytes);
    flipped[bytes.length >> 1]! ^= 1;
    let asked = 0;
    const privateStore: Store = {
      ...new Faults().wrap(world.privateStore, ""),
      get: async (key) => {
        const object = await world.privateStore.get(key);
        return object && key === runKey(0) && asked++ === 0 ? { ...object, bytes: flipped } : object;
      },
    };
    expect(await world.publisher({ privateStore }).takeNewRuns()).toMatchObject([{ n: 0, taken: true, cards: 1 }]);
    expect(asked).toBe(2);
  });

  it("of any length go into generations of a thousand lines", async () => {
    world.clock.set(now);
    const lines = Array.from({ length: 1_001 }, (_, i) => line(`many-${i}`, now, ["B"]));
    const drafts = [correction("many-1000", "c1"), correction("many-3", "c2"), correction("nobody", "c3")];
    expect(await publisher.takeRun({ header: header(now, 1), lines, drafts })).toMatchObject({
      cards: 1_001,
      leaves: 1_004,
    });
    await expect(world.privateStore.head("generation/00000000000000000002")).resolves.not.toBeNull();
    await expect(world.privateStore.head("generation/00000000000000000003")).resolves.toBeNull();
    await proven();
  });
});
