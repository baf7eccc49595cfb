import { expect, test } from "vitest";
import { watchMachine } from "../../commands/machine-status.ts";
import { systemClock } from "../../infra/clock.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { HealthReporter } from "../../pipelines/roles/pipeline.ts";
import { MACHINE_WORK_KINDS, type ScheduleParts, startMachine } from "../../pipelines/roles/schedule.ts";
import { Pulse } from "../../serving/status/pulse.ts";

/** The schedule of one machine as it runs, over a pipeline whose store takes no writes for a while: what health says. */
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
  const nothing = async () => 0;
  const stopped = new AbortController();
  const parts = {
    ...{ clock: systemClock, logger: createLogger("silent"), metrics, catalogues: [], pulse },
    pipeline: {
      getPublishedPlan: async (day: string) => ({ day, lines: [] }),
      grade: async (_: Date, { during }: HealthReporter) => {
        await during("ingest", writes);
        await during("publish", nothing);
      },
      ...{
        startAsks: nothing,
        writeVolatile: nothing,
        intake: nothing,
        resumeIntake: nothing,
        storeBudget: nothing,
        publishIndex: nothing,
      },
      ...{
        publishEvidence: nothing,
        archiveOldDays: nothing,
        writeHistory: nothing,
        collectGarbage: nothing,
        tidy: nothing,
      },
    },
    observer: {
      observeSpan: () =>
        new Promise((resolve) => stopped.signal.addEventListener("abort", () => resolve({ stopped: true }))),
      stop: () => stopped.abort(),
      ...{ awaitSettlements: nothing, readBuyers: nothing },
    },
    ...{ publisher: { refreshCheckpoint: nothing }, notifier: { runOnce: nothing } },
  };
  const running = startMachine(parts as unknown as ScheduleParts);
  const bounded = { timeout: 90_000, interval: 500 };
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
}, 300_000);
