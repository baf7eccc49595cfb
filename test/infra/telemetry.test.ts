import { expect, test } from "vitest";
import { createMetrics } from "../../infra/telemetry.ts";

test("counters of the areas of a process stand at 0 from its start, with every value that is known", async () => {
  const text = await createMetrics("observe").text();
  for (const fault of ["none", "ours", "blocked", "bad_input", "unconfirmed", "not_reproduced"])
    expect(text).toContain(`touchstone_observe_paid_total{fault="${fault}"} 0\n`);
  expect(text).toContain('touchstone_observe_calls_total{kind="paid",result="missed"} 0\n');
  expect(text).toContain("touchstone_observe_append_failures_total 0\n");
  expect(text).toContain('touchstone_observe_paid_call_seconds_bucket{le="0.1"} 0\n');
  // Nothing of what this process does not do.
  expect(text).not.toContain("touchstone_leaves_published_total");
  expect(text).not.toContain("touchstone_orders_");
});

test("a first use makes all values of a counter, and each registry counts for itself", async () => {
  const [one, other] = [createMetrics(), createMetrics()];
  one.count("touchstone_notices_total", { result: "failed" }, 7);
  const text = await one.text();
  expect(text).toContain('touchstone_notices_total{result="failed"} 7\n');
  expect(text).toContain('touchstone_notices_total{result="delivered"} 0\n');
  expect(await other.text()).not.toContain("touchstone_notices_total");
});

test("what Node tells of the process stands once in each text, with no gauge that is named like a counter", async () => {
  for (const metrics of [createMetrics("serve"), createMetrics()]) {
    const text = await metrics.text();
    for (const name of ["process_cpu_seconds_total", "nodejs_eventloop_lag_seconds", "nodejs_gc_duration_seconds"])
      expect(text.match(new RegExp(`^# TYPE ${name} `, "gm"))).toHaveLength(1);
    expect(text).not.toMatch(/# TYPE \S+_total gauge/);
  }
});
