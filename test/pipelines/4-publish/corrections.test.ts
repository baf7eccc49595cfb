import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { writeRun } from "../../../pipelines/4-publish/runs.ts";
import type { CorrectionDraft } from "../../../pipelines/4-publish/take-lines.ts";
import { headlineOf } from "../../../pipelines/published/caps.ts";
import type { SignedCard } from "../../../pipelines/record/card.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import type { Band } from "../../../pipelines/record/vocabulary.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { capOf, correction, header, line, PARTITIONS, TRUST, World } from "./world.ts";

const START = "2026-11-01";
let world: World;
let publisher: Publisher;
let next = 0;

beforeEach(async () => {
  ({ world, publisher } = await World.begun(START));
  next = 0;
});
afterEach(async () => {
  await proveRecord(world.publicStore, { trust: TRUST, atRest: true });
  await world.close();
});

const at = (day: number, hour: number) => `${addDays(START, day)}T${String(hour).padStart(2, "0")}:00:00.000Z`;
async function take(day: number, hour: number, band: Band, corrections: CorrectionDraft[] = []) {
  const now = at(day, hour);
  world.clock.set(now);
  return publisher.takeRun({ header: header(now, ++next), lines: [line("a", now, [band], now)], drafts: corrections });
}
const band = () => (JSON.parse(headlineOf(publisher.fold.caps.get(capOf("a"))!)!.text) as SignedCard).band;
const withdrawn = (observed_at: string, more: object = {}) =>
  correction("a", `of ${observed_at}`, { record_id: "rec_1", observed_at, ...more });

describe("letters that stood on a withdrawn record leave the hold", () => {
  // A D at 06:00 of day 0 that nothing takes back, an F at 12:00, an F of the next day; corrected on day 2.
  it.each<[string, string, Band]>([
    ["observed before all of them", at(0, 1), "A"],
    ["observed on the day of the first letter, after it", at(0, 7), "D"],
    ["at the very moment of a run, which did not read it", at(0, 6), "D"],
    ["between the two F", at(0, 13), "F"],
    ["after all letters", at(1, 7), "F"],
    ["before the window of every letter", "2025-12-31T23:59:59.999Z", "F"],
    ["at the first moment of the window", "2026-01-01T00:00:00.000Z", "A"],
  ])("a record %s", async (_, observedAt, published) => {
    await take(0, 6, "D");
    await take(0, 12, "F");
    await take(1, 6, "F");
    await take(2, 6, "A", [withdrawn(observedAt)]);
    expect(band()).toBe(published);
  });

  it("the letter before a skipped one does not run on into its days", async () => {
    await take(0, 6, "D");
    await take(1, 6, "F");
    await take(16, 6, "A", [withdrawn(at(0, 12))]);
    // Day 0 is out of the window, and days 1 to 15 had an F that is skipped.
    expect(band()).toBe("A");
  });

  it("taken back, they count again; a letter after the correction was never skipped", async () => {
    await take(0, 6, "F");
    await take(1, 6, "C", [withdrawn(at(0, 1))]);
    expect(band()).toBe("C");
    const back: CorrectionDraft = {
      ...{ kind: "reinstated", capability_id: capOf("a") },
      body: { correction: `of ${at(0, 1)}` },
    };
    await take(2, 6, "A", [back]);
    expect(band()).toBe("F");
  });

  it("of two corrections each skips its own letters, and one that is taken back skips none", async () => {
    await take(0, 6, "F");
    await take(1, 6, "D");
    await take(2, 6, "A", [withdrawn(at(0, 1)), withdrawn(at(0, 7))]);
    expect(band()).toBe("A");
    const back: CorrectionDraft = {
      ...{ kind: "reinstated", capability_id: capOf("a") },
      body: { correction: `of ${at(0, 1)}` },
    };
    await take(3, 6, "A", [back]);
    expect(band()).toBe("F");
  });
});

describe("a run that has not read a correction which is published", () => {
  const placed = { ...correction("a", "c1"), position: 7 };
  const read = (offset: number) => ({
    corrections: Object.fromEntries(Array.from({ length: PARTITIONS }, (_, p) => [String(p), offset])),
  });
  const run = (hour: number, corrections: number) => {
    const now = at(1, hour);
    world.clock.set(now);
    const { positions, ...rest } = header(now, 50 + hour);
    return {
      header: { ...rest, positions: { ...positions, ...read(corrections) } },
      lines: [line("a", now, ["A"], now)],
    };
  };

  it.each([
    ["has read up to it", 7, 0],
    ["has read it", 8, 1],
  ])("changes no card: one that %s", async (_, offset, cards) => {
    await take(0, 6, "B");
    await publisher.publishLeaves([placed]);
    const result = await publisher.takeRun(run(6, offset));
    expect(result).toMatchObject({ taken: true, cards, stale: 1 - cards });
  });

  it("is refused by another publisher, too, which knows it from the leaves alone; the next run mends it", async () => {
    await take(0, 6, "F");
    await publisher.publishLeaves([placed]);
    const other = world.publisher();
    expect(await other.takeRun(run(6, 0))).toMatchObject({ cards: 0, stale: 1 });
    expect(await other.takeRun(run(7, 8))).toMatchObject({ cards: 1, stale: 0 });
  });

  it("as a run of a paused process: written before the correction was read, taken after the one that had read it", async () => {
    await take(0, 6, "F");
    const slept = run(6, 0);
    const awake = run(7, 8);
    expect(await publisher.takeRun({ ...awake, drafts: [placed] })).toMatchObject({ cards: 1, leaves: 2 });
    const { n: _, ...sleptHeader } = slept.header;
    await writeRun(world.privateStore, sleptHeader, slept.lines, awake.header.n);
    const late = await world.publisher().takeNewRuns();
    expect(late.at(-1)).toMatchObject({ cards: 0 });
    expect(late.at(-1)!.taken).toBe(false);
  });
});
