import { expect, test } from "vitest";
import { z } from "zod";
import { faultsOf } from "../../../pipelines/record/faults.ts";

const Asked = z.strictObject({
  url: z.string().min(8).max(12),
  band: z.enum(["A", "B"]),
  schema: z.literal("svc.x.v1"),
  limit: z.int().min(1).max(20),
  items: z.array(z.string()).max(1),
  known: z.boolean(),
  id: z.string().regex(/^cap_/),
  own: z.string({ error: "must be given, once" }),
});

const told = (value: unknown): Record<string, string> =>
  Object.fromEntries(faultsOf(Asked.safeParse(value).error!).map(({ path, detail }) => [path.join("/"), detail]));

test("what is wrong is said in words that follow the name of its place, and a schema's own words stay", () => {
  expect(
    told({ url: "short", band: "C", schema: "x", limit: 99, items: ["a", "b"], known: 1, id: "x", own: 1 }),
  ).toEqual({
    ...{ url: "must have at least 8 characters", band: "must be one of A, B", schema: "must be svc.x.v1" },
    ...{ limit: "must be at most 20", items: "must have at most 1 items", known: "must be true or false" },
    ...{ id: "does not have the right form", own: "must be given, once" },
  });
  expect(told({ url: 7, limit: 1.5, items: {}, more: 1 })).toMatchObject({
    ...{ url: "must be a string", limit: "must be a whole number", items: "must be an array" },
    ...{ band: "must be one of A, B", known: "is missing", more: "is not a member that is accepted here" },
  });
});
