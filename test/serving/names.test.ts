import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PublicRecord } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/** One case of names: `like_this`, unless the interface or somebody else's standard wrote a name otherwise. */
const SNAKE = /^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/;
/** As the interface writes them, by the object that they are of; an exposure line repeats its check's. */
const INTERFACE: Record<string, readonly string[]> = {
  CheckAnswer: ["capabilityId", "computedAt", "observationsSince", "sampleCount", "withdrawnSince"],
  Correction: ["gradeAt", "issuedAt", "recordId"],
  Defect: ["seenAt"],
  IndexLine: ["seenAt"],
  Observed: ["askedForPayment", "distinctPrices", "firstSeen", "lastSeen", "spanDays"],
  Payee: ["bestBand", "withDefects"],
  ExposureLine: ["capabilityId"],
  PaymentTerms: ["x402Version"],
};
/** Objects whose shape is a standard's: A2A, ERC-8004, the MCP registry's, x402's. */
const STANDARDS = ["AgentCardAnswer", "AgentRegistrationAnswer", "McpServerFileAnswer", "X402ManifestAnswer"];

let record: PublicRecord;
let schemas: Record<string, unknown>;
beforeAll(async () => {
  record = await PublicRecord.open();
  const response = await (await servingOver(record)).get("/openapi.json");
  const document = (await response.json()) as { components: { schemas: Record<string, unknown> }; paths: unknown };
  schemas = { ...document.components.schemas, paths: document.paths };
});
afterAll(() => record.close());

/** Names of members in a schema, at any depth. */
function namesIn(value: unknown, found = new Set<string>()): Set<string> {
  if (Array.isArray(value)) for (const one of value) namesIn(one, found);
  else if (typeof value === "object" && value !== null) {
    const { properties } = value as { properties?: object };
    for (const name of Object.keys(properties ?? {})) found.add(name);
    for (const one of Object.values(value)) namesIn(one, found);
  }
  return found;
}

test("members of all answers and bodies are written in one case", () => {
  const all = Object.entries(schemas).filter(([name]) => !STANDARDS.includes(name));
  const odd = all.flatMap(([name, schema]) => {
    const names = [...namesIn(schema)].filter((one) => !SNAKE.test(one)).sort();
    return names.length > 0 ? [[name, names] as const] : [];
  });
  expect(Object.fromEntries(odd)).toEqual(INTERFACE);
  expect(new Set(all.flatMap(([, schema]) => [...namesIn(schema)])).size).toBeGreaterThan(250);
});

test("and so are metrics, under one prefix", () => {
  const root = join(import.meta.dirname, "../..");
  const names = new Set<string>();
  for (const dir of ["infra", "pipelines", "serving", "commands"]) {
    for (const file of readdirSync(join(root, dir), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue;
      const text = readFileSync(join(root, dir, file), "utf8");
      for (const [, name] of text.matchAll(/metrics\.\w+\(\s*"([^"]+)"/g)) names.add(name!);
    }
  }
  expect(names.size).toBeGreaterThan(15);
  expect([...names].filter((name) => !/^touchstone_[a-z]+(?:_[a-z0-9]+)*$/.test(name))).toEqual([]);
});
