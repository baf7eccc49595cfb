import { expect, test } from "vitest";
import { checkPlan, type PublishedPlan } from "../../../commands/plan.ts";
import { sha256hex } from "../../../infra/canonical.ts";
import { computeCoveredRoot, deriveDayBytes, drawCalls } from "../../../pipelines/1-observe/plan/plan.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { blockOf, dayStart } from "../../../pipelines/record/time.ts";
import { capOf } from "../2-ingest/records.ts";

const DAY = "2026-11-12";
const salt = Buffer.alloc(32, 3);
const first = blockOf(dayStart(DAY));
const line = (name: string, base: number, covered: boolean): DayPlan["lines"][number] => {
  const cap = capOf(name);
  return {
    cap,
    host: `${name}.example`,
    base_per_day: base,
    covered,
    calls: drawCalls(deriveDayBytes(salt, cap), first, base, covered),
  };
};
const lines = [line("a", 4, true), line("b", 1, true), line("c", 4, false)];
const covered_root = computeCoveredRoot([capOf("a"), capOf("b")]);
const plan: DayPlan = { v: 1, day: DAY, salt_hash: sha256hex(salt), covered_root, lines };
const committed: PublishedPlan = { salt_hash: plan.salt_hash, covered_root, covered: 2, salt: salt.toString("hex") };
const changed = (change: (lines: DayPlan["lines"]) => unknown): DayPlan => {
  const copy = structuredClone(plan);
  change(copy.lines);
  return copy;
};

test.each<[string, DayPlan, Partial<PublishedPlan>, string[]]>([
  ["as it was", plan, {}, []],
  ["before the salt is open", plan, { salt: null }, []],
  ["made later in the day: what had begun is missing", changed(([a]) => a!.calls.splice(0, 3)), {}, []],
  ["a call left out in the middle", changed(([a]) => a!.calls.splice(3, 1)), {}, ["the calls of cap_"]],
  ["the last call left out", changed(([a]) => a!.calls.pop()), {}, ["the calls of cap_"]],
  [
    "a minute moved",
    changed(([, b]) => Object.assign(b!.calls[0]!, { minute: 360 - b!.calls[0]!.minute })),
    {},
    ["the calls of cap_"],
  ],
  [
    "another wallet",
    changed(([a]) => Object.assign(a!.calls[1]!, { blind: !a!.calls[1]!.blind })),
    {},
    ["the calls of cap_"],
  ],
  ["an endpoint dropped", changed((all) => all.shift()), {}, ["covered endpoints differ", "it covers 1"]],
  [
    "an endpoint let in",
    changed((all) => Object.assign(all[2]!, { covered: true })),
    {},
    ["covered endpoints differ", "it covers 3", "calls of cap_"],
  ],
  ["another salt opened", plan, { salt: "04".repeat(32) }, ["published salt", "calls of", "calls of", "calls of"]],
  ["another salt committed", plan, { salt_hash: "00" }, ["its salt differs", "published salt"]],
])("%s", (_name, made, change, says) => {
  const wrong = checkPlan(made, { ...committed, ...change });
  expect(wrong).toHaveLength(says.length);
  for (const [i, part] of says.entries()) expect(wrong[i]).toContain(part);
});
