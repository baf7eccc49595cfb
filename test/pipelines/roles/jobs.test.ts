import { expect, test } from "vitest";
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
  await expect
    .poll(counted, { timeout: 10_000 })
    .toMatch(/touchstone_jobs_total\{job_name="a",result="failed"\} [2-9]/);
  await jobs.stop();
  expect(await counted()).toMatch(/touchstone_jobs_total\{job_name="b",result="done"\} [1-9]/);
  expect(together.has("a,b")).toBe(false);
  expect([...together].sort()).toContain("a,c");
  expect(running.size).toBe(0);
});
