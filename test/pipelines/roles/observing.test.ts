import { expect, test } from "vitest";
import { createLogger } from "../../../infra/telemetry.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { OBSERVER_JOBS, type ObservingParts, waitForCommittedPlan } from "../../../pipelines/roles/observing.ts";

const DAY = "2026-11-02";
const plan: DayPlan = { v: 1, day: DAY, salt_hash: "ab".repeat(32), covered_root: "cd".repeat(32), lines: [] };

/** Parts of which only the plan, what is published and the clock are asked. */
function parts(schedules: Map<string, { salt_hash: string; salt: null }>, onSleep: (n: number) => void) {
  let sleeps = 0;
  let at = new Date(`${DAY}T23:59:40.000Z`).getTime();
  const made = {
    pipeline: { ingest: async () => undefined, getOrDrawPlan: async () => plan },
    followed: { current: async () => ({ schedules }) },
    clock: {
      now: () => new Date(at),
      sleep: async (ms: number, signal?: AbortSignal) => {
        at += ms;
        onSleep(++sleeps);
        signal?.throwIfAborted();
      },
    },
    logger: createLogger("silent"),
  };
  return { parts: made as unknown as ObservingParts, slept: () => sleeps };
}

test("nobody is called before the commitment to this very plan is published", async () => {
  const schedules = new Map([["2026-11-01", { salt_hash: plan.salt_hash, salt: null }]]);
  const { parts: given, slept } = parts(schedules, (n) => {
    // Another plan of the day is no commitment to ours.
    if (n === 2) schedules.set(DAY, { salt_hash: "00".repeat(32), salt: null });
    if (n === 4) schedules.set(DAY, { salt_hash: plan.salt_hash, salt: null });
  });
  expect(await waitForCommittedPlan(given, DAY, new AbortController().signal)).toBe(plan);
  expect(slept()).toBe(4);
});

test("a stop ends the waiting", async () => {
  const stop = new AbortController();
  const { parts: given } = parts(new Map(), (n) => void (n === 3 && stop.abort(new Error("stopped"))));
  await expect(waitForCommittedPlan(given, DAY, stop.signal)).rejects.toThrow("stopped");
});

test("the end of a day ends the waiting for its plan, since nobody commits to a plan of the past", async () => {
  const { parts: given, slept } = parts(new Map(), (n) => {
    if (n > 10) throw new Error("still waiting");
  });
  const waiting = waitForCommittedPlan(given, DAY, new AbortController().signal);
  await expect(waiting).rejects.toThrow(`${DAY} ended before the commitment to its plan was published`);
  expect(slept()).toBe(4);
});

test("one of several observers grades and publishes nothing", () => {
  // Its budget is a private report, and the archive's rows only leave its own lake.
  const names = ["archive", "asks", "budget", "buyers", "follow", "intake", "plan", "resume", "settlements"];
  expect(OBSERVER_JOBS.map(({ name }) => name).sort()).toEqual(names);
});
