import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, test } from "vitest";

/** infra <- pipelines <- serving, the front door on top; fixtures stand beside and know only the rails. */
const ROOT = resolve(import.meta.dirname, "..");
const FLOORS = ["infra", "pipelines", "serving"];

const filesBelow = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|mjs)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));

const IMPORT = /(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\(\s*)["'](\.{1,2}\/[^"']+)["']/g;

/** Paths from the root of everything this file names by a relative import (workers by `new URL` included). */
function importsOf(file: string, text = readFileSync(file, "utf8")): string[] {
  return [...text.matchAll(IMPORT)].map((match) => relative(ROOT, resolve(dirname(file), match[1]!)));
}

/** Why `from` may not import `to`, or null. */
function trespass(from: string, to: string): string | null {
  const source = from.split("/")[0]!;
  const target = to.split("/")[0]!;
  if (source === "fixtures") {
    return target === "fixtures" || to.startsWith("infra/rails") ? null : "fixtures may import infra/rails only";
  }
  if (target === "fixtures" || target === "test") return `${source} must not import ${target}`;
  if (target === "touchstone.ts") return "nobody imports the front door";
  if (FLOORS.indexOf(target) > FLOORS.indexOf(source)) return `${source} must not import ${target}: imports point down`;
  return null;
}

describe("import floors", () => {
  test.each([...FLOORS, "fixtures"])("%s keeps to its floor", (floor) => {
    const wrong = filesBelow(floor).flatMap((file) => {
      const from = relative(ROOT, file);
      return importsOf(file).flatMap((to) => {
        const why = trespass(from, to);
        return why ? [`${from} -> ${to}: ${why}`] : [];
      });
    });
    expect(wrong).toEqual([]);
  });

  test("only infra/config.ts reads the environment", () => {
    const readers = [...FLOORS, "fixtures"]
      .flatMap(filesBelow)
      .concat(join(ROOT, "touchstone.ts"))
      .filter((file) => /\bprocess\.env\b/.test(readFileSync(file, "utf8")))
      .map((file) => relative(ROOT, file));
    expect(readers).toEqual(["infra/config.ts"]);
  });

  test("the rule itself can fail", () => {
    expect(trespass("infra/log/x.ts", "pipelines/record/ids.ts")).not.toBeNull();
    expect(trespass("pipelines/x.ts", "serving/app.ts")).not.toBeNull();
    expect(trespass("fixtures/market/x.ts", "pipelines/record/ids.ts")).not.toBeNull();
    expect(trespass("fixtures/market/x.ts", "infra/rails/evm.ts")).toBeNull();
    expect(trespass("serving/app.ts", "infra/canonical.ts")).toBeNull();
    const file = join(ROOT, "infra/log/x.ts");
    expect(importsOf(file, 'import { a } from "../../pipelines/a.ts";\nnew URL("./w.ts", import.meta.url)')).toEqual([
      "pipelines/a.ts",
      "infra/log/w.ts",
    ]);
  });
});
