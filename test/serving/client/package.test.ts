import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { build } from "esbuild";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as sources from "../../../serving/client/index.ts";
import { installedClient, packedClient } from "../../helpers/client-package.ts";

/** `touchstone-client` as `npm pack` makes it, held against programs that others wrote: publint, attw, tsc and npm. */
const ROOT = resolve(import.meta.dirname, "../../..");
const CONSUMER = join(import.meta.dirname, "consumer");
const run = promisify(execFile);
let dir: string;
let tarball: string;
let installed: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "client-package-"));
  tarball = await packedClient(dir, { whole: true });
  installed = join(await installedClient(tarball, join(dir, "user")), "node_modules/touchstone-client");
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const ofPackage = async (file: string): Promise<string> => readFile(join(installed, file), "utf8");

test("the tarball holds the file, its declarations, and what a reader needs: nothing else", async () => {
  const { stdout } = await run("tar", ["-tzf", tarball]);
  expect(stdout.trim().split("\n").sort()).toEqual([
    "package/CHANGELOG.md",
    "package/LICENSE",
    "package/README.md",
    "package/dist/client.d.mts",
    "package/dist/client.mjs",
    "package/dist/proof.d.mts",
    "package/dist/proof.mjs",
    "package/package.json",
  ]);
  expect(await ofPackage("LICENSE")).toBe(await readFile(join(ROOT, "LICENSE"), "utf8"));
});

test("its version is one of npm's, the library's own, and the first of its changelog", async () => {
  const { version, dependencies, peerDependencies } = JSON.parse(await ofPackage("package.json"));
  expect(version).toBe(sources.VERSION);
  expect(version).toMatch(/^20\d\d\.(?:[1-9]|1[0-2])\.[1-9]\d*$/);
  expect([dependencies, peerDependencies]).toEqual([undefined, undefined]);
  const changes = [...(await ofPackage("CHANGELOG.md")).matchAll(/^## (\S+)$/gm)].map(([, one]) => one);
  expect(changes).toEqual([version, "2026.9.4", "2026.9.3", "2026.9.2", "2026.9.1"]);
  expect(await ofPackage("README.md")).toContain(`touchstone-client-${version}.tgz`);
});

describe("the file", () => {
  test.each(["client", "proof"])(
    "%s is plain JavaScript without imports, with the licence that it owes, and names no place of a source",
    async (name) => {
      const text = await ofPackage(`dist/${name}.mjs`);
      expect(text).not.toMatch(/^\s*import\b|\bimport\(|\brequire\(|sourceMappingURL|^\/\/ \S+\.[jt]s$/m);
      const theirs = await readFile(join(ROOT, "node_modules/@noble/ed25519/LICENSE"), "utf8");
      expect(text).toContain(theirs.trim());
    },
  );

  test("is no larger than its pages say", async () => {
    const bundled = async (contents: string): Promise<number> => {
      const stdin = { contents, resolveDir: join(dir, "user") };
      const options = { bundle: true, minify: true, write: false, format: "esm", platform: "neutral" } as const;
      return gzipSync((await build({ stdin, ...options })).outputFiles[0]!.contents, { level: 9 }).length;
    };
    const bytes = [
      (await ofPackage("dist/client.mjs")).length,
      await bundled('export * from "touchstone-client"'),
      await bundled('export { verifyCheck } from "touchstone-client"'),
    ];
    const limits = [102, 24, 7].map((kilobytes) => kilobytes * 1000);
    for (const [i, limit] of limits.entries()) expect([limit, bytes[i]! <= limit]).toEqual([limit, true]);
    const said = "at most 102 KB as it is, 24 KB minified and compressed, 7 KB where only signatures are verified";
    expect(await ofPackage("README.md")).toContain(said);
    expect(await readFile(join(ROOT, "docs/client.md"), "utf8")).toContain(said);
  });
});

test("publint has nothing to say", async () => {
  const bytes = await readFile(tarball);
  const data = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  const { messages, pkg } = await publint({ pack: { tarball: data }, strict: true });
  expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([]);
});

test("attw: every resolution finds the declarations; CommonJS alone must import it", async () => {
  const analysis = await checkPackage(createPackageFromTarballData(await readFile(tarball)));
  if (!analysis.types) throw new Error("it has no declarations");
  expect(Object.keys(analysis.entrypoints)).toEqual([".", "./proof", "./package.json"]);
  // Of a file that is ESM alone, which Node from 20.19 on can be asked for by require as well.
  expect(analysis.problems.map(({ kind, ...more }) => [kind, more])).toEqual([
    ["CJSResolvesToESM", { entrypoint: ".", resolutionKind: "node16-cjs" }],
    // The oldest resolution knows no subpaths; the page asks for nodenext or bundler.
    ["NoResolution", { entrypoint: "./proof", resolutionKind: "node10" }],
    ["CJSResolvesToESM", { entrypoint: "./proof", resolutionKind: "node16-cjs" }],
  ]);
});

const STRICT = {
  ...{ target: "es2022", strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true },
  ...{ skipLibCheck: false, noEmit: true, verbatimModuleSyntax: true },
};

/** What the two releases of tsc that users have say of a program where the package is installed; "" if neither objects. */
async function compiled(name: string, program: string, options: object): Promise<string> {
  const folder = join(dir, "user", name);
  await mkdir(folder);
  await writeFile(join(folder, "main.ts"), program);
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: { ...STRICT, ...options } }));
  const told = ({ stdout }: { stdout: string }) => stdout;
  const said = ["typescript", "typescript-7"].map((compiler) => {
    const tsc = join(ROOT, "node_modules", compiler, "bin/tsc");
    return run(process.execPath, [tsc, "-p", folder, "--pretty", "false"]).then(told, told);
  });
  return (await Promise.all(said)).join("");
}

describe("tsc, without skipLibCheck, over a program that names every export", () => {
  const NODENEXT = { module: "nodenext", moduleResolution: "nodenext", lib: ["ES2023"], types: ["node"] };
  const BUNDLER = { module: "esnext", moduleResolution: "bundler", lib: ["ES2022", "DOM"], types: [] };
  const program = (file: string): Promise<string> => readFile(join(CONSUMER, file), "utf8");

  test("nodenext, with the types of Node", async () => {
    expect(await compiled("nodenext", await program("main.ts"), NODENEXT)).toBe("");
  });

  test("bundler, with those of a browser", async () => {
    expect(await compiled("bundler", await program("main.ts"), BUNDLER)).toBe("");
  });

  test("a policy of the proofs is one that Service takes", async () => {
    const uses = `import { Service } from "touchstone-client";
import { NotProven, type ProofFault, type ProvenCard, WitnessPolicy, type WitnessPolicyOptions, witnessPolicy } from "touchstone-client/proof";
const options: WitnessPolicyOptions = { maxAge_s: 60 };
const policy: WitnessPolicy = await witnessPolicy("quorum none\\n", options);
const proven: ProvenCard | ProofFault = await policy.prove({}).catch((error: NotProven) => error.reason);
console.log(new Service({ base: "https://record.example", policy }), proven);
export {};
`;
    expect(await compiled("proof", uses, BUNDLER)).toBe("");
  });

  test("with the official client, whose types fit", async () => {
    expect(await compiled("x402", await program("x402.ts"), { ...NODENEXT, skipLibCheck: true })).toBe("");
  });

  test("what is wrong is told", async () => {
    const wrong = 'import { Service } from "touchstone-client";\nnew Service({ bas: "" });\n';
    expect((await compiled("wrong", wrong, BUNDLER)).match(/main\.ts\(2,15\): error TS/g)).toHaveLength(2);
  });

  test("it does name every one", async () => {
    const { __esModule: _, ...values } = (await import(join(installed, "dist/client.mjs"))) as Record<string, unknown>;
    expect(Object.keys(values).sort()).toEqual(Object.keys(sources).sort());
    const declared = [...(await ofPackage("dist/client.d.mts")).matchAll(EXPORTED)].map(([, name]) => name!);
    expect(declared).toEqual(expect.arrayContaining(Object.keys(values)));
    const [, named] = /^import \{(.*?)\} from "touchstone-client";$/ms.exec(await program("main.ts"))!;
    const names = named!.split(",").flatMap((one) => one.trim().replace(/^type /, "") || []);
    expect(names.sort()).toEqual(declared.sort());
  });
});

const EXPORTED = /^export (?:declare )?(?:const|function|class|interface|type) (\w+)/gm;
