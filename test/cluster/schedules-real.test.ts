import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { scheduleOf, seedsFrom } from "../helpers/schedule.ts";
import { ScheduleWorld } from "../helpers/schedule-world.ts";
import { type Engines, engineTestbed, startEngines } from "./engine-testbed.ts";

/**
 * `SEED=n` lives through one schedule again (the same script; the engines' own time cannot be drawn again). Without it, one
 * for each four that are drawn over the parts of one machine.
 */
const SEEDS = seedsFrom(1, 4);
const STEPS = 12;

let engines: Engines;
beforeAll(async () => {
  engines = await startEngines();
});
afterAll(() => engines.stop());

describe.concurrent("random schedules over a real broker and a real S3 server", () => {
  test.each(SEEDS)("seed %i", async (seed) => {
    const bed = await engineTestbed(engines, `seed-${seed}`);
    try {
      const story = await ScheduleWorld.run(bed, seed, scheduleOf(seed, STEPS));
      expect(story.length).toBeGreaterThanOrEqual(STEPS);
    } finally {
      await bed.close();
    }
  });
});
