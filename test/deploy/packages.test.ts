import { readdirSync, readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { join, relative, resolve } from "node:path";
import ts from "typescript";
import { describe, expect, test } from "vitest";
import { builtClient } from "../helpers/client-package.ts";
import { builtDist } from "../helpers/programs.ts";

/**
 * What is installed beside the built command line is what it imports, and nothing else. All other packages are part of what
 * is built, or for development: the demo's market and the local chain, its contracts' compiler and the tests.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const { dependencies, devDependencies, optionalDependencies, engines } = JSON.parse(
  readFileSync(join(ROOT, "package.json"), "utf8"),
) as {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
  engines: { node: string };
};

/** Development packages that no file imports: run by name, types, and sources of a contract. */
const TOOLS = [
  "@biomejs/biome",
  "@modelcontextprotocol/conformance",
  "@openzeppelin/contracts",
  "typescript-7",
  /^@types\//,
];

const packageOf = (specifier: string): string => specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");

/** Names of modules that this text of JavaScript asks for when it runs. */
const asksFor = (text: string): string[] =>
  ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);

const scriptsBelow = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(?:ts|mjs)$/.test(entry.name) && !entry.name.endsWith(".d.mts"))
    .map((entry) => join(entry.parentPath, entry.name))
    // What is built, and what the outside suite installs for its judges.
    .filter((file) => !/serving\/client\/dist\/|\/outside\/js\/node_modules\//.test(file));

test("an installed service serves the client's file as its package holds it", async () => {
  const served = readFileSync(join(builtDist(), "serving/client/dist/client.mjs"));
  expect(served.equals(readFileSync(await builtClient()))).toBe(true);
});

describe("packages", () => {
  const dist = builtDist();
  const texts = scriptsBelow("dist")
    .filter((file) => !/^(?:fixtures|docs)\//.test(relative(dist, file)))
    .map((file) => readFileSync(file, "utf8"));
  const asked = texts.flatMap(asksFor).filter((name) => !/^(?:\.|node:)/.test(name) && !isBuiltin(name));
  const imported = new Set(asked.map(packageOf));

  test("the product is built: every role, and threads by their address", () => {
    const files = texts.flatMap((text) => [...text.matchAll(/^\/\/ (\S+\.(?:ts|mjs))$/gm)].map(([, file]) => file!));
    expect(new Set(files).size).toBeGreaterThan(300);
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
    expect([...imported].filter((name) => !Object.hasOwn(dependencies, name))).toEqual([]);
  });

  test("whatever is a dependency it imports: all else is built in, or for development", () => {
    expect(Object.keys(dependencies).filter((name) => !imported.has(name))).toEqual([]);
  });

  const used = new Set(
    ["infra", "pipelines", "serving", "commands", "fixtures", "test"]
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
    const judges = JSON.parse(readFileSync(join(ROOT, "test/outside/js/package.json"), "utf8")).dependencies;
    const named = {
      ...dependencies,
      ...devDependencies,
      ...optionalDependencies,
      ...judges,
      "touchstone-client": "a workspace",
    };
    expect([...used].filter((name) => !(name in named))).toEqual([]);
  });

  test("whoever is built in is named with its licence", () => {
    const built = new Set(
      texts
        .flatMap((text) => [...text.matchAll(/^\s*\/\/ (?:.*\/)?node_modules\/((?:@[\w.-]+\/)?[\w.-]+)\//gm)])
        .map(([, name]) => name!),
    );
    expect(built.size).toBeGreaterThan(30);
    const notices = readFileSync(join(dist, "THIRD-PARTY.txt"), "utf8");
    const named = new Map(
      [...notices.matchAll(/^(@?[\w./-]+)@\d\S* \((.+)\)$/gm)].map(([, name, licence]) => [name!, licence!]),
    );
    expect([...built].filter((name) => !named.has(name))).toEqual([]);
    // Each of them may be given away as a part of something else, with its notice; anything else somebody has to read first.
    expect(new Set(named.values())).toEqual(new Set(["0BSD", "Apache-2.0", "ISC", "MIT"]));
    for (const words of ["Permission is hereby granted", "Apache License"]) {
      expect(notices).toContain(words);
    }
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
