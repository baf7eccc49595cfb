import { mkdtemp, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import type { Testbed } from "../helpers/role-process.ts";
import { scheduleOf, seedsFrom } from "../helpers/schedule.ts";
import { ScheduleWorld } from "../helpers/schedule-world.ts";

/** `SEED=n` lives through one schedule again; without it these seeds are, or the first `SCHEDULES` of them. */
const SEEDS = seedsFrom(1_000);
const STEPS = 12;

/** Five schedules at once have some 100 MB; containers give their memory disks 64 where nobody asked for more. */
const ROOM_BYTES = 1e9;

/**
 * Memory where there is room, else the disk. No schedule takes the power away: processes die, and what they wrote is
 * there for the next one wherever it was written. A disk's syncs would be a third of the time, and prove nothing.
 */
async function somewhere(): Promise<string> {
  const memory = await statfs("/dev/shm").catch(() => null);
  return memory && memory.bavail * memory.bsize > ROOM_BYTES ? "/dev/shm" : tmpdir();
}

/** The parts of one machine: what the levers do to them is all that happens. */
async function embedded(): Promise<Testbed & { close(): Promise<void> }> {
  const dir = await mkdtemp(join(await somewhere(), "schedule-"));
  return {
    dir,
    openLog: () => openEmbeddedLog(join(dir, "log"), { ...LOG_TOPIC_OPTIONS, partitions: 2 }),
    openStores: async () => ({
      privateStore: await openDirectoryStore(join(dir, "private")),
      publicStore: await openDirectoryStore(join(dir, "public")),
    }),
    weather: () => undefined,
    clear: () => undefined,
    close: () => rm(dir, { recursive: true, force: true }),
  };
}

describe.concurrent("random schedules over the parts of one machine", () => {
  test.each(SEEDS)("seed %i", async (seed) => {
    const bed = await embedded();
    try {
      const story = await ScheduleWorld.run(bed, seed, scheduleOf(seed, STEPS));
      expect(story.length).toBeGreaterThanOrEqual(STEPS);
    } finally {
      await bed.close();
    }
  });
});
