import { afterEach, describe, expect, it } from "vitest";
import { createMetrics } from "../../../infra/telemetry.ts";
import { createStatusApp, openStatus, type Status } from "../../../serving/status/listener.ts";
import { Pulse } from "../../../serving/status/pulse.ts";

/** A steady clock that a test winds, beside one that shows a fixed day. */
function pulseOf(first = "own") {
  const clock = { ms: 0, now: () => new Date(Date.UTC(2026, 10, 21) + clock.ms), monotonic: () => clock.ms };
  const metrics = createMetrics();
  const pulse = new Pulse({ role: "own", clock, metrics, patienceMs: 60_000 }, first);
  const done = (name: string) => pulse.during(name, async () => undefined);
  const failed = (name: string) =>
    pulse.during(name, async () => {
      throw new RangeError("https://node.example/?key=hidden");
    });
  return { clock, metrics, pulse, done, failed };
}

describe("a role's pulse", () => {
  it("is starting until its first work was done, however long that takes, and well then", async () => {
    const { clock, pulse, done } = pulseOf();
    clock.ms = 3_600_000;
    expect(pulse.health()).toMatchObject({ ok: false, state: "starting", problems: ["own was not done yet"] });
    await done("own");
    expect(pulse.health()).toMatchObject({ ok: true, state: "working", problems: [] });
    expect(pulse.health().works.own).toEqual({
      last_done: "2026-11-21T01:00:00.000Z",
      last_failed: null,
      error: null,
    });
  });

  it("is unwell when a work was not done for longer than patience, failed or hanging, and well when it is", async () => {
    const { clock, pulse, done, failed } = pulseOf();
    await done("own");
    clock.ms = 60_000;
    await expect(failed("own")).rejects.toThrow(RangeError);
    expect(pulse.health()).toMatchObject({ ok: true });
    clock.ms = 60_001;
    const sick = pulse.health();
    expect(sick).toMatchObject({ ok: false, state: "working", problems: ["own was not done for 60 s"] });
    // The name of what went wrong, and nothing of its message.
    expect(sick.works.own).toMatchObject({ last_failed: "2026-11-21T00:01:00.000Z", error: "RangeError" });
    expect(JSON.stringify(sick)).not.toContain("hidden");
    await done("own");
    expect(pulse.health()).toMatchObject({ ok: true, works: { own: { error: null } } });
  });

  it("names a full disk, which Node reports as a plain Error", async () => {
    const { pulse } = pulseOf();
    const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    await expect(pulse.during("own", () => Promise.reject(full))).rejects.toThrow(full);
    expect(pulse.health().works.own).toMatchObject({ error: "storage" });
  });

  it("counts a work from when it is asked for, and no more once it is not", async () => {
    const { clock, pulse, done } = pulseOf("publish");
    await done("publish");
    clock.ms = 50_000;
    pulse.setRequired("checkpoint");
    await done("publish");
    clock.ms = 110_000;
    expect(pulse.health()).toMatchObject({ ok: true });
    pulse.setRequired("checkpoint");
    await done("publish");
    clock.ms = 110_001;
    expect(pulse.health()).toMatchObject({ ok: false, problems: ["checkpoint was not done for 60 s"] });
    pulse.setRequired();
    expect(pulse.health()).toMatchObject({ ok: true, works: { publish: {} } });
  });

  it("waits for something within patience", async () => {
    const { clock, pulse, done } = pulseOf();
    await done("own");
    pulse.setWaiting("the plan", true);
    clock.ms = 40_000;
    await done("own");
    pulse.setWaiting("the plan", true);
    expect(pulse.health()).toMatchObject({ ok: true, state: "waiting", waits_for: ["the plan"] });
    clock.ms = 60_001;
    expect(pulse.health()).toMatchObject({
      ok: false,
      state: "waiting",
      problems: ["the plan is waited for since 60 s"],
    });
    pulse.setWaiting("the plan", false);
    expect(pulse.health()).toMatchObject({ ok: true, state: "working" });
    expect(pulse.health()).not.toHaveProperty("waits_for");
  });

  it("watches a table of jobs: what each gives and throws stays as it was", async () => {
    const { pulse } = pulseOf("a");
    const table = [
      { name: "a", cronTimes: "* * * * * *", queue: "x", run: async (n: number) => n + 1 },
      { name: "b", cronTimes: "* * * * * *", queue: "x", run: () => Promise.reject(new Error("no")) },
    ];
    pulse.setRequired("b");
    const [a, b] = pulse.watch(table);
    expect(await a!.run(1)).toBe(2);
    await expect(b!.run(1)).rejects.toThrow("no");
    expect(pulse.health().works).toMatchObject({ a: { error: null }, b: { last_done: null, error: "Error" } });
  });

  it("is unwell once a part of a work failed three times in succession, asked for or not, and well when it ends well", async () => {
    const { metrics, pulse, done } = pulseOf("grade");
    pulse.setRequired("publish");
    await done("grade");
    await done("publish");
    const index = () => Promise.reject(new RangeError("no"));
    const broken = () => pulse.during("index", index, "publish").catch(() => undefined);
    const works = async () => {
      pulse.health();
      const all = await metrics.gauges("touchstone_role_ok");
      return Object.fromEntries(all.map(({ labels, value }) => [labels.work ?? "all", value]));
    };
    for (let n = 0; n < 2; n++) await broken();
    expect(pulse.health()).toMatchObject({ ok: true, works: { publish: { error: "RangeError" } } });
    await broken();
    const problems = ["index failed 3 times in succession: RangeError"];
    expect(pulse.health()).toMatchObject({ ok: false, problems });
    expect(await works()).toEqual({ all: 0, grade: 1, publish: 0 });
    // Another part of the same work ended well: this one still fails.
    await done("publish");
    expect(pulse.health()).toMatchObject({ ok: false, problems });
    await pulse.during("index", async () => undefined, "publish");
    expect(await works()).toEqual({ all: 1, grade: 1, publish: 1 });
  });

  it("is unwell while the disk of the data folder is full", async () => {
    let free: number | null = null;
    const clock = { now: () => new Date(0), monotonic: () => 0 };
    const parts = { role: "start" as const, clock, metrics: createMetrics(), patienceMs: 60_000 };
    const pulse = new Pulse({ ...parts, freeBytes: () => free }, "grade");
    pulse.done("grade");
    expect(pulse.health().ok).toBe(true);
    free = 10 * 2 ** 20;
    expect(pulse.health()).toMatchObject({
      ok: false,
      problems: ["the disk of the data folder is full: 10 MiB are free"],
    });
    free = 2 ** 30;
    expect(pulse.health().ok).toBe(true);
  });

  it("has a time of last success for what is asked for alone: a daily job is no work that stands still", async () => {
    const { metrics, pulse, done } = pulseOf("a");
    const works = async () =>
      (await metrics.gauges("touchstone_work_last_done_seconds")).map(({ labels }) => labels.work);
    await done("a");
    await done("daily");
    expect(await works()).toEqual(["a"]);
    pulse.setRequired("b");
    await done("b");
    expect(await works()).toEqual(["a", "b"]);
    pulse.setRequired();
    expect(await works()).toEqual(["a"]);
  });
});

describe("the listener", () => {
  const open: Status[] = [];
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
  });

  it("says health as a status and metrics in Prometheus text, to GET and HEAD", async () => {
    const { clock, metrics, done, pulse } = pulseOf();
    const app = createStatusApp(pulse, metrics);
    const ask = async (path: string, method = "GET") => app.fetch(new Request(`http://x${path}`, { method }));
    expect((await ask("/health")).status).toBe(503);
    await done("own");
    const well = await ask("/health");
    expect(well.status).toBe(200);
    expect(well.headers.get("cache-control")).toBe("no-store");
    expect(await well.json()).toMatchObject({ role: "own", ok: true });
    metrics.gauge("touchstone_ingest_lag_records", 7, { topic: "asks", partition: "1" });
    const text = await (await ask("/metrics")).text();
    expect(text).toContain('touchstone_role_ok{role="own"} 1');
    expect(text).toContain(`touchstone_work_last_done_seconds{work="own"} ${Date.UTC(2026, 10, 21) / 1000}`);
    expect(text).toContain('touchstone_ingest_lag_records{topic="asks",partition="1"} 7');
    clock.ms = 60_001;
    // Nobody has to ask for health before.
    expect(await (await ask("/metrics")).text()).toContain('touchstone_role_ok{role="own"} 0');
    metrics.forget("touchstone_ingest_lag_records", { topic: "asks", partition: "1" });
    metrics.forget("touchstone_watchers", {});
    expect(await (await ask("/metrics")).text()).not.toContain("partition=");
    expect((await ask("/health", "HEAD")).status).toBe(503);
    for (const path of ["/", "/health/x", "/v1/check"]) expect((await ask(path)).status).toBe(404);
    const refused = await ask("/health", "POST");
    expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  });

  it("listens where it is told to, and nowhere unless it is", async () => {
    const { clock, metrics } = pulseOf();
    const parts = { role: "own" as const, clock, metrics, listen: true };
    const settings = { host: "127.0.0.1", port: 0, patience_s: 60 };
    const at = (port: number | null) => ({
      status: { ...settings, port },
      data_dir: import.meta.dirname,
      revision: "v1",
    });
    const on = await openStatus(at(0), parts, "own");
    open.push(on);
    expect(on.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect((await fetch(`${on.url}/health`)).status).toBe(503);
    expect(await openStatus(at(null), parts, "own")).toMatchObject({ url: null });
    expect(await openStatus(at(0), { ...parts, listen: false }, "own")).toMatchObject({ url: null });
    const taken = openStatus(at(Number(new URL(on.url!).port)), parts, "own");
    await expect(taken).rejects.toThrow(/another process listens there/);
  });
});
