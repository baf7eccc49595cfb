import pino from "pino";
import { expect, test, vi } from "vitest";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { type Job, jobsOf, type Role, runJobs } from "../../../pipelines/roles/jobs.ts";

const namesOf = (role: Role): string[] => jobsOf(role, {} as never).map(({ name }) => name);

test("one machine does what observer, owner and publisher do, under the name of the larger job where two are one", () => {
  const partOf: Record<string, string> = {
    follow: "grade",
    own: "grade",
    publish: "grade",
    tables: "volatile",
    plans: "plan",
  };
  const roles: Role[] = ["observer", "owner", "publisher"];
  const all = new Set(roles.flatMap(namesOf).map((name) => partOf[name] ?? name));
  expect([...all].sort()).toEqual(namesOf("machine").sort());
});

test("a run that is left out since the last one still runs is a line of our log, and nothing on the console", async () => {
  const lines: Record<string, unknown>[] = [];
  const logger = pino({ level: "debug" }, { write: (line) => void lines.push(JSON.parse(line)) });
  const console_ = [vi.spyOn(console, "warn"), vi.spyOn(console, "error"), vi.spyOn(console, "info")];
  let end = (): void => undefined;
  const until = new Promise<void>((done) => {
    end = done;
  });
  const slow: Job<unknown> = { name: "slow", queue: "x", cronTimes: "* * * * * *", run: () => until };
  const jobs = runJobs({ logger, metrics: createMetrics() }, [slow]);
  await expect.poll(() => lines).not.toEqual([]);
  end();
  await jobs.stop();
  expect(lines[0]).toMatchObject({ level: 20, job: "slow", msg: expect.stringContaining("still running") });
  for (const spy of console_) {
    expect(spy).not.toHaveBeenCalled();
    spy.mockRestore();
  }
});

test("jobs of one queue never run together, others do; one that fails is counted and run again", async () => {
  const metrics = createMetrics();
  const running = new Set<string>();
  const together = new Set<string>();
  const took = (name: string, queue: string, fails = false): Job<unknown> => ({
    ...{ name, queue, cronTimes: "* * * * * *" },
    run: async () => {
      running.add(name);
      for (const other of running) if (other !== name) together.add([name, other].sort().join());
      await new Promise((done) => setTimeout(done, 300));
      running.delete(name);
      if (fails) throw new Error("no");
    },
  });
  const jobs = runJobs({ logger: createLogger("silent"), metrics }, [
    took("a", "x", true),
    took("b", "x"),
    took("c", "y"),
  ]);
  const counted = async (): Promise<string> => metrics.text();
  await expect.poll(counted).toMatch(/touchstone_jobs_total\{job_name="a",result="failed"\} (?:[2-9]|\d\d)/);
  await jobs.stop();
  expect(await counted()).toMatch(/touchstone_jobs_total\{job_name="b",result="done"\} [1-9]/);
  expect(together.has("a,b")).toBe(false);
  expect([...together].sort()).toContain("a,c");
  expect(running.size).toBe(0);
});
