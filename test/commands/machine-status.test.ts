import { expect, test, vi } from "vitest";
import { watchMachine } from "../../commands/machine-status.ts";
import { systemClock } from "../../infra/clock.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { HealthReporter } from "../../pipelines/roles/pipeline.ts";
import { MACHINE_WORK_KINDS, type ScheduleParts, startMachine, startSchedule } from "../../pipelines/roles/schedule.ts";
import { Pulse } from "../../serving/status/pulse.ts";

/** The schedule of one machine as it runs, over a pipeline whose store takes no writes for a while: what health says. */
const nothing = async () => 0;
const PIPELINE = {
  getPublishedPlan: async (day: string) => ({ day, lines: [] }),
  grade: nothing,
  ...{ startAsks: nothing, writeVolatile: nothing, intake: nothing, resumeIntake: nothing, storeBudget: nothing },
  ...{ publishIndex: nothing, publishEvidence: nothing, archiveOldDays: nothing, writeHistory: nothing },
  ...{ collectGarbage: nothing, tidy: nothing, hasListings: async () => true },
};
const OTHER_PARTS = { publisher: { refreshCheckpoint: nothing }, notifier: { runOnce: nothing } };

test("a job that fails time after time is told as its work's, within minutes, and is well again after", async () => {
  const metrics = createMetrics();
  const health = new Pulse({ role: "start", clock: systemClock, metrics, patienceMs: 300_000 }, "follow");
  health.done("follow");
  const log = { partitions: 2, bounds: async () => ({ start: 0, end: 5 }) };
  const pulse = watchMachine(health, { log, ingest: { positions: async () => ({}) }, metrics } as never);
  let isFull = false;
  const writes = async () => {
    if (isFull) throw Object.assign(new Error("no space left"), { name: "StoreFull" });
  };
  const stopped = new AbortController();
  const parts = {
    ...{ clock: systemClock, logger: createLogger("silent"), metrics, catalogues: [], pulse },
    pipeline: {
      ...PIPELINE,
      grade: async (_: Date, { during }: HealthReporter) => {
        await during("ingest", writes);
        await during("publish", nothing);
      },
    },
    observer: {
      observeSpan: () =>
        new Promise((resolve) => stopped.signal.addEventListener("abort", () => resolve({ stopped: true }))),
      stop: () => stopped.abort(),
      ...{ followUpCalls: nothing, readBuyers: nothing },
    },
    ...OTHER_PARTS,
  };
  const running = startMachine(parts as unknown as ScheduleParts);
  const bounded = { timeout: 580_000, interval: 500 };
  const lastDone = () => MACHINE_WORK_KINDS.map((work) => health.health().works[work]?.last_done ?? null);
  try {
    await expect.poll(lastDone, bounded).not.toContain(null);
    expect(health.health()).toMatchObject({ ok: true, problems: [], lag: { 0: 30, 1: 30 } });
    isFull = true;
    await expect.poll(() => health.health().ok, bounded).toBe(false);
    expect(health.health().problems).toContain("ingest failed 3 times in succession: StoreFull");
    const stands = await metrics.gauges("touchstone_role_ok");
    const workOk = Object.fromEntries(stands.map(({ labels, value }) => [labels.work ?? "all", value]));
    expect(workOk).toMatchObject({ all: 0, ingest: 0, notify: 1, observe: 1, publish: 1 });
    isFull = false;
    await expect.poll(() => health.health().ok, bounded).toBe(true);
  } finally {
    await running.stop();
  }
});

/** A process that waits: the calls of its day are made, or its catalogues have not listed anything yet. */
test.each<[string, object]>([
  ["the last call of the day was made hours before midnight", { catalogues: [] }],
  ["the first plan waits for the catalogues", { catalogues: [{ name: "one", url: "https://one.example/" }] }],
])("%s: observing is well past the patience", async (_, more) => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "Date"], now: new Date("2026-11-21T21:00:00Z") });
  const untilAborted = (_: number, signal?: AbortSignal) =>
    new Promise<void>((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const clock = { now: () => new Date(), monotonic: () => Date.now(), sleep: untilAborted };
  const metrics = createMetrics();
  const health = new Pulse({ role: "observe", clock, metrics, patienceMs: 300_000 }, "observe");
  const parts = {
    ...{ clock, logger: createLogger("silent"), metrics, pulse: health, ...OTHER_PARTS, ...more },
    pipeline: { ...PIPELINE, hasListings: async () => false, intake: () => new Promise(() => undefined) },
    observer: {
      observeSpan: async () => ({ stopped: false }),
      stop: () => undefined,
      ...{ followUpCalls: nothing, readBuyers: nothing },
    },
  };
  const schedule = {
    jobs: [],
    planOf: async (day: string) => ({ day, lines: [] }),
    observe: parts.observer.observeSpan,
  };
  const jobs = [{ name: "intake", cronTimes: "0 0 0 1 1 *", queue: "intake", run: () => nothing() }];
  const running = startSchedule(parts as never, { ...schedule, jobs } as never);
  try {
    for (let minute = 0; minute < 20; minute++) {
      await vi.advanceTimersByTimeAsync(60_000);
      expect(health.health().problems).toEqual([]);
    }
  } finally {
    await running.stop();
    vi.useRealTimers();
  }
});
