import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { PROBLEMS } from "../../../serving/http/problem.ts";
import { WORKS } from "../../../serving/operations/paid.ts";

/** The page that describes an operation: companies have one of their own. */
const pageOf = (id: string): string => {
  const name = id === "companiesLookup" ? "companies-lookup" : "paid-operations";
  return readFileSync(join(import.meta.dirname, `../../../docs/${name}.md`), "utf8");
};

test("the rows are those of the interface, in its order, and the page describes each of them", () => {
  expect(WORKS.map(({ id, path }) => [id, path])).toEqual([
    ["docsExtract", "/v1/docs/extract"],
    ["companiesLookup", "/v1/companies/lookup"],
    ["webEvidence", "/v1/web/evidence"],
    ["researchBrief", "/v1/research/brief"],
  ]);
  for (const { path, id } of WORKS) if (id !== "companiesLookup") expect(pageOf(id)).toContain(`## POST ${path}`);
});

test.each(WORKS.map((work) => [work.id, work] as const))(
  "%s can be described: closed bodies and answers, known errors",
  (_, work) => {
    for (const schema of [work.body, work.answer]) {
      const described = z.toJSONSchema(schema, { io: "input" });
      expect(described).toMatchObject({ type: "object", additionalProperties: false });
    }
    for (const code of work.errors) expect(PROBLEMS).toHaveProperty(code);
    expect(work.maxBodyBytes).toBeGreaterThan(0);
  },
);

test("every member that an answer has at its top stands on the page", () => {
  const missing = WORKS.flatMap(({ id, body, answer }) =>
    [body, answer].flatMap((schema) => {
      const { properties = {} } = z.toJSONSchema(schema, { io: "input" }) as { properties?: object };
      return Object.keys(properties)
        .filter((name) => !pageOf(id).includes(`\`${name}\``))
        .map((name) => `${id}: ${name}`);
    }),
  );
  expect(missing).toEqual([]);
});
