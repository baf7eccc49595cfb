import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import ts from "typescript";
import { describe, expect, test } from "vitest";

/**
 * What is installed with `npm ci --omit=dev` is what the product imports, and nothing else. The product is all that can be
 * reached from the front door; the demo's market and the local chain, its contracts' compiler and the tests are not.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const { dependencies, devDependencies, engines } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  engines: { node: string };
};

/** The loader that the command line names. */
const LOADER = "tsx";
/** Development packages that no file imports: run by name, types, and sources of a contract. */
const TOOLS = ["@biomejs/biome", "@modelcontextprotocol/conformance", "@openzeppelin/contracts", /^@types\//];

const packageOf = (specifier: string): string => specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");

/** Names of modules that this text asks for when it runs: types are erased, workers and resolved paths are seen. */
function asksFor(text: string): string[] {
  const { outputText } = ts.transpileModule(text, {
    compilerOptions: { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true },
  });
  const imported = ts.preProcessFile(outputText, true, true).importedFiles.map(({ fileName }) => fileName);
  const named = outputText.matchAll(
    /(?:new URL\(|\brequire(?:\.resolve)?\(|import\.meta\.resolve\()\s*["']([^"']+)["']/g,
  );
  return [...imported, ...[...named].map(([, name]) => name!)];
}

/** Packages by name, each with a file that asks for it; and every file that was read. */
function reachedFrom(entries: readonly string[]): { packages: Map<string, string>; files: Set<string> } {
  const packages = new Map<string, string>();
  const files = new Set<string>();
  const visit = (file: string): void => {
    if (files.has(file) || relative(ROOT, file).startsWith("fixtures/")) return;
    files.add(file);
    for (const name of asksFor(readFileSync(file, "utf8"))) {
      const target = resolve(dirname(file), name);
      if (name.startsWith("node:")) continue;
      if (!name.startsWith(".")) packages.set(packageOf(name), relative(ROOT, file));
      // A folder that is read by its address, or a table of SQL, imports nothing.
      else if (/\.(?:ts|mjs)$/.test(name) && existsSync(target) && statSync(target).isFile()) visit(target);
    }
  };
  for (const entry of entries) visit(entry);
  return { packages, files };
}

const scriptsBelow = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(?:ts|mjs)$/.test(entry.name) && !entry.name.endsWith(".d.mts"))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !file.includes("/dist/"));

describe("packages", () => {
  const product = reachedFrom([join(ROOT, "touchstone.ts")]);

  test("the product is reached: every role, and threads by their address", () => {
    const files = [...product.files].map((file) => relative(ROOT, file));
    expect(files.length).toBeGreaterThan(300);
    for (const file of [
      "commands/observe.ts",
      "pipelines/1-observe/reading/questions.ts",
      "infra/log/kafka/client.ts",
    ]) {
      expect(files).toContain(file);
    }
    expect(files.filter((file) => /^(?:fixtures|test)\//.test(file))).toEqual([]);
  });

  test("whatever it imports is a dependency", () => {
    const missing = [...product.packages].filter(([name]) => !Object.hasOwn(dependencies, name));
    expect(missing).toEqual([]);
  });

  test("whatever is a dependency it imports: all else is for development", () => {
    const unused = Object.keys(dependencies).filter((name) => !product.packages.has(name) && name !== LOADER);
    expect(unused).toEqual([]);
  });

  const used = new Set(
    ["infra", "fixtures", "serving/client", "test"]
      .flatMap(scriptsBelow)
      .flatMap((file) => [
        ...readFileSync(file, "utf8").matchAll(/(?:\bfrom |\bimport\(|\brequire(?:\.resolve)?\()"([@\w][\w./-]*)"/g),
      ])
      .map(([, name]) => packageOf(name!)),
  );

  test("every development package is used by something, if only for its types", () => {
    const tool = (name: string) => TOOLS.some((one) => (typeof one === "string" ? one === name : one.test(name)));
    expect(Object.keys(devDependencies).filter((name) => !used.has(name) && !tool(name))).toEqual([]);
  });

  test("every package that a test or fixture asks for is named: what a work tree still holds is not in a clone", () => {
    const named = { ...dependencies, ...devDependencies, "touchstone-client": "a workspace" };
    const examples = ["a", "b", "@c/c", "d", "f"]; // of the test below
    expect([...used].filter((name) => !(name in named) && !examples.includes(name))).toEqual([]);
  });

  test("types are erased, values are not, and threads are seen", () => {
    const text = `import type { A } from "a"; import { type B } from "b"; export { c } from "@c/c/deep";
      // import "comment"
      const d = await import("d"); new Worker(new URL("./e.mjs", import.meta.url)); require.resolve("f/package.json");`;
    expect(asksFor(text).map((name) => (name.startsWith(".") ? name : packageOf(name)))).toEqual([
      ...["b", "@c/c", "d"],
      ...["./e.mjs", "f"],
    ]);
  });
});

test("releases of Node: what package.json admits is what is tried, and the image runs one of which every version is", () => {
  const tried = [...readFileSync(join(ROOT, "test/nodes.ts"), "utf8").matchAll(/^const TRIED = \[(.+)\];$/gm)][0]![1]!;
  const ranges = engines.node
    .split(" || ")
    .map((range) => /^(?:\^|>=)(\d+)\.\d+\.\d+(?: <(\d+\.\d+)\.0)?$/.exec(range)!);
  const admitted = ranges.map(([, major]) => major!);
  expect(tried.split(", ")).toEqual(admitted);
  expect(admitted).toContain(process.versions.node.split(".")[0]);
  const images = [...readFileSync(join(ROOT, "infra/deploy/Dockerfile"), "utf8").matchAll(/\bnode:(\d+)-/g)];
  // A base that is looked up anew is the newest version of its release: also that has to be admitted.
  const whole = ranges.filter(([, , below]) => below === undefined).map(([, major]) => major!);
  expect(new Set(images.map(([, major]) => major))).toEqual(new Set([whole.at(-1)]));
  expect(readFileSync(join(ROOT, ".ci/run"), "utf8")).toContain("npm run test:nodes");
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  expect(readme).toContain(`Node ${admitted.slice(0, -1).join(", ")} and ${admitted.at(-1)}`);
  for (const [, major, below] of ranges) if (below) expect(readme).toContain(`${major} before ${below}`);
});
