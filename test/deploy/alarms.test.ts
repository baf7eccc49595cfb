import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { METRICS } from "../../infra/metrics.ts";
import { FAULTS } from "../../pipelines/record/vocabulary.ts";

const ROOT = join(import.meta.dirname, "../..");
const read = (name: string): string => readFileSync(join(ROOT, name), "utf8");

/** Labels that Prometheus adds to whatever it scrapes; of ours none may have their names, it would be renamed. */
const ADDED = ["instance", "job"];
/** What Node's own metrics begin with. */
const OF_NODE = /^(?:process|nodejs)_/;

interface Rule {
  alert: string;
  expr: string;
  annotations: { summary: string };
}
interface RuleTest {
  input_series: { series: string; values: string }[];
  alert_rule_test: { alertname: string; exp_alerts: unknown[] }[];
}
const rules = (parse(read("infra/deploy/alerts.yaml")) as { groups: { rules: Rule[] }[] }).groups[0]!.rules;
const ruleTests = (parse(read("infra/deploy/alerts.test.yaml")) as { tests: RuleTest[] }).tests;
const panels = (
  JSON.parse(read("infra/deploy/dashboard.json")) as {
    panels: { title: string; targets: { expr: string; legendFormat: string }[] }[];
  }
).panels;

const expressions = [
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
  ...panels.flatMap(({ title, targets }) => targets.map(({ expr }) => [title, expr] as const)),
];

/** Names of metrics that an expression asks for; a histogram's series are of its name. */
const namesIn = (expr: string): string[] =>
  [...expr.matchAll(/\b(?:touchstone|process|nodejs)_[a-z0-9_]+/g)].map(([name]) => name.replace(/_bucket$/, ""));

describe("alarms and dashboard", () => {
  test.each(expressions)("%s asks for what is exported", (_, expr) => {
    const named = namesIn(expr);
    expect(named.length > 0 || expr === "up == 0").toBe(true);
    for (const name of named) if (!OF_NODE.test(name)) expect(Object.keys(METRICS)).toContain(name);
    const known = [...ADDED, "le", ...named.flatMap((name) => Object.keys(METRICS[name]?.labels ?? {}))];
    for (const [, label, value] of expr.matchAll(/[{,]([a-z_]+)="([^"]*)"/g)) {
      expect(known).toContain(label);
      const values = named.map((name) => METRICS[name]?.labels?.[label!]).find((one) => one !== undefined);
      if (values) expect(values).toContain(value);
    }
    for (const [, list] of expr.matchAll(/\b(?:by|without|ignoring|on) ?\(([^)]*)\)/g))
      for (const label of list!.split(/, ?/)) expect(known).toContain(label);
  });

  test("the board shows every metric about witnesses that are not ours", () => {
    const shown = new Set(panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => namesIn(expr))));
    const ofWitnesses = Object.keys(METRICS).filter((name) => name.startsWith("touchstone_witness"));
    expect(ofWitnesses).toHaveLength(3);
    expect(ofWitnesses.filter((name) => !shown.has(name))).toEqual([]);
  });

  test("labels of ours are none of Prometheus' own, and what a metric says is more than its name", () => {
    for (const [name, { help, labels = {} }] of Object.entries(METRICS)) {
      expect(
        Object.keys(labels).filter((label) => ADDED.includes(label)),
        name,
      ).toEqual([]);
      expect(help.split(" ").length, name).toBeGreaterThan(1);
      expect(help, name).toMatch(/^[A-Z1].*\.$/);
    }
  });

  test("the faults of a paid call are the record's", () => {
    expect(METRICS.touchstone_observe_paid_total!.labels!.fault).toEqual(["none", ...FAULTS]);
  });

  test("every alarm has its paragraph for whoever is woken", () => {
    const page = read("docs/operate.md");
    for (const { alert } of rules) expect(page).toMatch(new RegExp(`^\\*\\*${alert}\\*\\*`, "m"));
    const there = [...page.matchAll(/^\*\*([A-Z]\w+)\*\*/gm)].map(([, name]) => name!);
    expect(there.sort()).toEqual(rules.map(({ alert }) => alert).sort());
  });

  test.each(rules.map(({ alert }) => [alert]))("%s has a series that rings it, and one more that does not", (alert) => {
    const about = ruleTests.filter(({ alert_rule_test }) => alert_rule_test.some((one) => one.alertname === alert));
    const rings = about.flatMap(({ alert_rule_test }) => alert_rule_test.map(({ exp_alerts }) => exp_alerts.length));
    expect(Math.max(...rings)).toBeGreaterThan(0);
    const series = about.flatMap(({ input_series }) => input_series);
    expect(series.length).toBeGreaterThan(Math.max(...rings));
  });
});
