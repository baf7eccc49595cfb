import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, test } from "vitest";

/** infra <- pipelines <- serving <- commands, the front door on top; fixtures stand beside and know only the rails. */
const ROOT = resolve(import.meta.dirname, "..");
const FLOORS = ["infra", "pipelines", "serving", "commands"];

const filesBelow = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|mjs)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    // What is built of them.
    .filter((file) => !file.includes("/dist/"));

const IMPORT = /(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\(\s*)["'](\.{1,2}\/[^"']+)["']/g;

/** Paths from the root of everything this file names by a relative import (workers by `new URL` included). */
function importsOf(file: string, text = readFileSync(file, "utf8")): string[] {
  return [...text.matchAll(IMPORT)].map((match) => relative(ROOT, resolve(dirname(file), match[1]!)));
}

const LOADED = /^(?:import|export)\s+(?!type\b)(?:([^;"']*?)\bfrom\s+)?["']([^"']+)["']/gm;
const isTypesOnly = (names = "") => /^\{\s*(?:type [^,}]+[,\s]*)+\}\s*$/.test(names);

/** Packages that are loaded with this file: what it imports by dynamic import or for its types alone is not. */
function packagesOf(file: string, seen = new Set<string>()): Set<string> {
  const packages = new Set<string>();
  if (seen.has(file)) return packages;
  seen.add(file);
  for (const [, names, to] of readFileSync(join(ROOT, file), "utf8").matchAll(LOADED)) {
    if (isTypesOnly(names)) continue;
    if (!to!.startsWith(".")) packages.add(to!);
    else for (const one of packagesOf(relative(ROOT, resolve(ROOT, dirname(file), to!)), seen)) packages.add(one);
  }
  return packages;
}

/** Why `from` may not import `to`, or null. */
function trespass(from: string, to: string): string | null {
  const source = from.split("/")[0]!;
  const target = to.split("/")[0]!;
  if (source === "fixtures") {
    return target === "fixtures" || to.startsWith("infra/rails") ? null : "fixtures may import infra/rails only";
  }
  if (target === "fixtures" || target === "test") return `${source} must not import ${target}`;
  const [roles, protocol] = ["pipelines/roles/", "pipelines/roles/protocol/"];
  if (from.startsWith(protocol) && to.startsWith(roles) && !to.startsWith(protocol))
    return "no protocol knows its wiring";
  if (target === "touchstone.ts") return "nobody imports the front door";
  if (FLOORS.indexOf(target) > FLOORS.indexOf(source)) return `${source} must not import ${target}: imports point down`;
  return null;
}

/** Chains of imports that end where they began, each once; a thread that is begun by its address is an import. */
function circlesOf(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const done = new Set<string>();
  const circles: string[] = [];
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(" -> "));
    if (path.includes(file) || done.has(file)) return;
    for (const next of imports.get(file) ?? []) walk(next, [...path, file]);
    done.add(file);
  };
  for (const file of imports.keys()) walk(file, []);
  return circles;
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

  test("no file comes back to itself by its imports, types included", () => {
    const files = [...FLOORS, "fixtures"].flatMap(filesBelow).map((file) => relative(ROOT, file));
    expect(circlesOf(new Map(files.map((file) => [file, importsOf(join(ROOT, file))])))).toEqual([]);
  });

  test("only infra/config.ts reads the environment", () => {
    const readers = [...FLOORS, "fixtures"]
      .flatMap(filesBelow)
      .concat(join(ROOT, "touchstone.ts"))
      .filter((file) => /\bprocess\.env\b/.test(readFileSync(file, "utf8")))
      .map((file) => relative(ROOT, file));
    expect(readers).toEqual(["infra/config.ts"]);
  });

  test("only infra/clock.ts says what time it is; above infra no counter runs beside it", () => {
    const reading = (file: string): RegExp =>
      file.startsWith("infra/") ? /\bDate\.now\(|\bnew Date\(\)/ : /\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(/;
    const readers = FLOORS.flatMap(filesBelow)
      .map((file) => relative(ROOT, file))
      .filter((file) => reading(file).test(readFileSync(join(ROOT, file), "utf8")))
      .sort();
    // The client, and the proof in a browser, run where there is no clock of ours.
    expect(readers).toEqual(["infra/clock.ts", "serving/client/carrier.ts", "serving/prove/page.mjs"]);
  });

  // Each of these costs a start more than such a command takes.
  const HEAVY = ["viem", "@duckdb/node-api", "h3", "kafkajs", "@aws-sdk/client-s3", "@modelcontextprotocol/server"];
  test.each(["keys", "mirror", "audit", "recompute", "exposure", "export", "plan"])(
    "%s loads no heavy package",
    (word) => {
      const loaded = packagesOf(`commands/${word}.ts`);
      expect(loaded).toContain("zod");
      expect(HEAVY.filter((name) => loaded.has(name))).toEqual([]);
    },
  );

  test("what a service loads is found by the same search", () => {
    const loaded = packagesOf("commands/start.ts");
    // Kafka and S3 are loaded by those whose settings name one.
    expect(HEAVY.filter((name) => !loaded.has(name))).toEqual(["kafkajs", "@aws-sdk/client-s3"]);
  });

  test("the rule itself can fail", () => {
    expect(trespass("infra/log/x.ts", "pipelines/record/ids.ts")).not.toBeNull();
    expect(trespass("pipelines/x.ts", "serving/app.ts")).not.toBeNull();
    expect(trespass("serving/app.ts", "commands/start.ts")).not.toBeNull();
    expect(trespass("fixtures/market/x.ts", "pipelines/record/ids.ts")).not.toBeNull();
    expect(trespass("fixtures/market/x.ts", "infra/rails/evm.ts")).toBeNull();
    expect(trespass("serving/app.ts", "infra/canonical.ts")).toBeNull();
    const file = join(ROOT, "infra/log/x.ts");
    expect(importsOf(file, 'import { a } from "../../pipelines/a.ts";\nnew URL("./w.ts", import.meta.url)')).toEqual([
      "pipelines/a.ts",
      "infra/log/w.ts",
    ]);
    const imports: [string, string[]][] = [
      ["a", ["b", "c"]],
      ["b", ["d"]],
      ["c", ["d"]],
      ["d", ["e"]],
      ["e", ["b"]],
    ];
    expect(circlesOf(new Map(imports))).toEqual(["b -> d -> e -> b"]);
    expect(circlesOf(new Map(imports.slice(0, 4)))).toEqual([]);
  });
});
