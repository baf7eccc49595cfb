import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
// @ts-expect-error a plain script, run by hand after `npm install`
import { entryOf, missing } from "../infra/deploy/lock-platforms.mjs";

const lock = JSON.parse(readFileSync(new URL("../package-lock.json", import.meta.url), "utf8"));

test("the lock names every platform's package, so that `npm ci` takes it anywhere (else: node infra/deploy/lock-platforms.mjs)", () => {
  expect(missing(lock.packages).map(([name]: [string]) => name)).toEqual([]);
});

test("the lock names no registry", () => {
  expect(JSON.stringify(lock)).not.toContain("resolved");
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
