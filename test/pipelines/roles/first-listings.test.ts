import { afterEach, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { type Running, type ScheduleParts, startMachine } from "../../../pipelines/roles/schedule.ts";

/** The real schedule of a machine, over a pipeline that says what it was asked; its intake ends when it is told to. */
let running: Running | null = null;
afterEach(async () => {
  await running?.stop();
  running = null;
});

function machine({ listed: atStart, catalogues = ["https://c.example"] }: { listed: boolean; catalogues?: string[] }) {
  const called: string[] = [];
  let listed = atStart;
  let done = (): void => undefined;
  const intake = new Promise<void>((resolve) => {
    done = resolve;
  });
  const says = (name: string) => async () => void called.push(name);
  const pipeline = {
    intake: async () => {
      called.push("intake");
      await intake;
    },
    hasListings: async () => listed,
    getPublishedPlan: async (day: string) => {
      called.push("plan");
      return { day, lines: [] };
    },
    ...Object.fromEntries(["grade", "writeVolatile", "startAsks", "resumeIntake"].map((name) => [name, says(name)])),
  };
  const observer = {
    observeSpan: async () => {
      called.push("observe");
      return { stopped: true };
    },
    stop: () => done(),
    followUpCalls: says("settlements"),
  };
  const parts = {
    ...{ pipeline, observer, catalogues, clock: systemClock },
    publisher: { refreshCheckpoint: says("checkpoint") },
    notifier: { runOnce: says("notify") },
    logger: createLogger("silent"),
    metrics: createMetrics(),
  } as unknown as ScheduleParts;
  running = startMachine(parts);
  const list = (): void => {
    listed = true;
  };
  return { called, done, list };
}

test("a catalogue that hangs holds up neither the plan and its calls nor a grade, where something is listed", async () => {
  const { called } = machine({ listed: true });
  await expect.poll(() => called).toEqual(expect.arrayContaining(["intake", "observe", "grade"]));
  expect(called.indexOf("plan")).toBeLessThan(called.indexOf("observe"));
});

// Waits for jobs by the wall clock.
test("where nothing is listed the plan waits for the catalogues, and nothing else does", async () => {
  const { called, done, list } = machine({ listed: false });
  await expect.poll(() => called).toEqual(expect.arrayContaining(["intake", "grade", "notify"]));
  expect(called).not.toContain("plan");
  list();
  done();
  await expect.poll(() => called).toEqual(expect.arrayContaining(["plan", "observe"]));
});

// Of two observers the one that does not own a catalogue's host is done with it at once, and has read nothing.
test("a reading that ends with nothing listed is no reason for an empty plan: another's may be in the log soon", async () => {
  const { called, done, list } = machine({ listed: false });
  done();
  await expect.poll(() => called).toContain("intake");
  await new Promise((later) => setTimeout(later, 500));
  expect(called).not.toContain("plan");
  list();
  await expect.poll(() => called).toEqual(expect.arrayContaining(["plan", "observe"]));
});

test("without catalogues nothing is waited for", async () => {
  const { called } = machine({ listed: false, catalogues: [] });
  await expect.poll(() => called).toEqual(expect.arrayContaining(["plan", "observe"]));
  expect(called).not.toContain("intake");
});
