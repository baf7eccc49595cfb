import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { sql } from "../infra/lake/sql.ts";

const ROOT = join(import.meta.dirname, "..");
const LAYERS = readdirSync(join(ROOT, "sql"));
const below = (folder: string, end: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(end))
    .map((name) => join(folder, name));

/** Every text of the code that names a query, and whatever else `sql(..)` is called with, each with its file. */
const asked = ["infra", "pipelines", "serving", "commands"]
  .flatMap((folder) => below(folder, ".ts"))
  .flatMap((file) => {
    const text = readFileSync(join(ROOT, file), "utf8");
    const named = [...text.matchAll(/"((\w+)\/\w+(?::\w+)?)"/g)].filter(([, , folder]) => LAYERS.includes(folder!));
    return [...named, ...text.matchAll(/\bsql\("([^"]+)"\)/g)].map(([, name]) => ({ file, name: name! }));
  });

test("whatever query the code asks for is there: a name that is wrong throws only where it runs", () => {
  expect(asked.length).toBeGreaterThan(80);
  const wrong = asked.flatMap(({ file, name }) => {
    try {
      sql(name);
      return [];
    } catch (error) {
      return [`${file}: ${(error as Error).message}`];
    }
  });
  expect(wrong).toEqual([]);
});

test("no file of sql/ is there that nobody asks for", () => {
  const wanted = new Set(asked.map(({ name }) => `sql/${name.split(":")[0]}.sql`));
  expect(below("sql", ".sql").filter((file) => !wanted.has(file))).toEqual([]);
});
