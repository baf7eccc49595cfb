import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";

const ROOT = join(import.meta.dirname, "../..");
const read = (name: string): string => readFileSync(join(ROOT, name), "utf8");

/** Every metric of the code, with the names of its labels as they stand at its first use. */
function metricsOfTheCode(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const folder of ["infra", "pipelines", "serving", "commands"])
    for (const file of readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue;
      const text = read(join(folder, file));
      for (const [, name, rest = ""] of text.matchAll(/"(touchstone_[a-z_]+)"((?:[^;]{0,200})?)/g)) {
        const labels = found.get(name!) ?? new Set();
        for (const [, label] of rest.matchAll(/[{,]\s*([a-z]+)\b(?=\s*[:,}])/g)) labels.add(label!);
        found.set(name!, labels);
      }
    }
  return found;
}

/** What Prometheus adds to whatever it scrapes. */
const ADDED = ["instance", "job"];

interface Rule {
  alert: string;
  expr: string;
  annotations: { summary: string };
}
const rules = (parse(read("infra/deploy/alerts.yaml")) as { groups: { rules: Rule[] }[] }).groups[0]!.rules;
const panels = (
  JSON.parse(read("infra/deploy/dashboard.json")) as {
    panels: { title: string; targets: { expr: string; legendFormat: string }[] }[];
  }
).panels;

const expressions = [
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
  ...panels.flatMap(({ title, targets }) => targets.map(({ expr }) => [title, expr] as const)),
];

describe("alarms and dashboard", () => {
  const metrics = metricsOfTheCode();

  test.each(expressions)("%s asks for what the code counts", (_, expr) => {
    const named = [...expr.matchAll(/touchstone_[a-z_]+/g)].map(([name]) => name);
    expect(named.length).toBeGreaterThan(0);
    for (const name of named) expect([...metrics.keys()]).toContain(name);
    const known = new Set([...ADDED, ...named.flatMap((name) => [...metrics.get(name)!])]);
    const labels = [
      ...[...expr.matchAll(/\{([a-z]+)=/g)].map(([, label]) => label!),
      ...[...expr.matchAll(/(?:by|without|ignoring|on) ?\(([^)]*)\)/g)].flatMap(([, list]) => list!.split(/, ?/)),
    ];
    for (const label of labels) expect([...known]).toContain(label);
  });

  test("every alarm has its paragraph for whoever is woken", () => {
    const page = read("docs/operate.md");
    for (const { alert } of rules) expect(page).toMatch(new RegExp(`^\\*\\*${alert}\\*\\*`, "m"));
    const there = [...page.matchAll(/^\*\*([A-Z]\w+)\*\*/gm)].map(([, name]) => name!);
    expect(there.sort()).toEqual(rules.map(({ alert }) => alert).sort());
  });
});
