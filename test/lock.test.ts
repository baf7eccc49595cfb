import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
// @ts-expect-error a plain script, run by hand after `npm install`
import { bare, entryOf, missing } from "../infra/deploy/lock-platforms.mjs";

const lock = JSON.parse(readFileSync(new URL("../package-lock.json", import.meta.url), "utf8"));

test("the lock names every platform's package, so that `npm ci` takes it anywhere (else: node infra/deploy/lock-platforms.mjs)", () => {
  expect(missing(lock.packages).map(([name]: [string]) => name)).toEqual([]);
});

test("the lock names no registry", () => {
  const { packages } = lock as { packages: Record<string, { resolved?: string; link?: boolean }> };
  const resolved = Object.values(packages).filter((entry) => entry.resolved !== undefined);
  // A workspace is a folder of this project.
  expect(resolved).toEqual([{ resolved: "serving/client", link: true }]);
  for (const [, host] of JSON.stringify(lock).matchAll(/https?:\/\/([^/"]+)/g))
    expect(host).not.toMatch(/registry|npm/);
});

test("the line of docs/client.md that installs the packages that pay has the versions with which its snippets are run", () => {
  const page = readFileSync(new URL("../docs/client.md", import.meta.url), "utf8");
  const { devDependencies, dependencies } = JSON.parse(
    readFileSync(new URL("../package.json", import.meta.url), "utf8"),
  ) as Record<"dependencies" | "devDependencies", Record<string, string>>;
  const [, words] = /^npm install (@x402\/.+)$/m.exec(page)!;
  const named = words!.split(" ").map((word) => word.split(/(?<=.)@/) as [string, string]);
  const imported = [...page.matchAll(/ from "((?:@x402\/)?[a-z0-9]+)(?:\/[^"]*)?";$/gm)].map(([, name]) => name!);
  expect(named.map(([name]) => name).sort()).toEqual([...new Set(imported)].sort());
  for (const [name, version] of named)
    expect([name, version]).toEqual([name, { ...devDependencies, ...dependencies }[name]]);
});

/**
 * Optional binaries of other platforms that nobody could fetch where the lock was written. Never one more: what is
 * installed on Linux x64, where image and CI are, has its hash. `node infra/deploy/lock-platforms.mjs --integrity` asks npm
 * for these, wherever it has them; what it finds leaves this list.
 */
const UNFETCHED = [
  ...["android-arm64", "android-x64", "darwin-arm64", "darwin-x64", "linux-arm64-musl", "linux-x64-musl"].map(
    (platform) => `@biomejs/cli-${platform}`,
  ),
  ...["win32-arm64", "win32-x64"].map((platform) => `@biomejs/cli-${platform}`),
  ...["darwin-arm64", "darwin-x64", "linux-arm64", "linux-arm64-musl", "win32-arm64", "win32-x64"].map(
    (platform) => `@duckdb/node-bindings-${platform}`,
  ),
  ...["darwin-amd64", "darwin-arm64", "linux-arm64", "win32-amd64"].map((platform) => `@foundry-rs/anvil-${platform}`),
];

test("every package has its hash, but for binaries of other platforms that are named here", () => {
  interface Entry {
    integrity?: string;
    optional?: boolean;
    os?: string[];
    cpu?: string[];
    libc?: string[];
  }
  const packages = lock.packages as Record<string, Entry>;
  const held = Object.entries(packages).filter(([path]) => path.includes("node_modules/"));
  expect(held.length).toBeGreaterThan(250);
  for (const [path, { integrity }] of held) {
    if (integrity !== undefined) expect([path, integrity]).toEqual([path, expect.stringMatching(/^sha512-.{86}==$/)]);
  }
  const without: [string, string][] = bare(packages);
  expect(without.map(([, name]) => name).filter((name) => !UNFETCHED.includes(name))).toEqual([]);
  for (const [path] of without) {
    const { optional, os, cpu, libc } = packages[path]!;
    const ours = os?.includes("linux") && cpu?.includes("x64") && !libc?.includes("musl");
    expect([path, optional, ours]).toEqual([path, true, false]);
  }
});

test("a package without a hash is seen, wherever it lies", () => {
  const packages = {
    "": {},
    "node_modules/a": { integrity: "x" },
    "node_modules/a/node_modules/@b/c": { version: "1" },
  };
  expect(bare(packages)).toEqual([["node_modules/a/node_modules/@b/c", "@b/c", "1"]]);
});

test("a package that is left out is found and made again", () => {
  const packages = {
    "": {},
    "node_modules/x": { dev: true, optionalDependencies: { "@x/y-linux-x64-musl": "1.2.3" } },
  };
  const [[name, version, parent]] = missing(packages);
  expect(entryOf(name, version, parent)).toEqual({
    version: "1.2.3",
    cpu: ["x64"],
    dev: true,
    libc: ["musl"],
    optional: true,
    os: ["linux"],
  });
});
