import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EXIT } from "../../commands/exit.ts";
import { entry } from "../pipelines/1-observe/world.ts";

/**
 * The command line out of its tarball: packed from a copy of the project in which keys, settings and data lie about, installed
 * with its packages into an empty prefix, and used: a seller is probed, graded, published, served, mirrored and audited.
 * Packages come from npm; only what they would compile is copied from ours, which were compiled for this release of Node.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const SECRET = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318";
/** What an operator has in the folder; each holds the secret. */
const LITTER = [
  ...["touchstone.json", ".env", ".npmrc", "wallets/known.json", "keys/answers-1.pem", ".touchstone/log/topics.db"],
  ...["dist/touchstone.json", "dist/.env", "dist/old-chunk.mjs", "dist/docs/private.txt", "docs/keys.json"],
  ...["sql/dump.csv", "serving/client/dist/settings.json", "infra/deploy/.env", "infra/deploy/s3/secrets.env"],
];
const COMPILED = ["better-sqlite3/build", "zstd-napi/build"];
const NEVER_COPIED = /^(?:node_modules|\.git|dist|\.cache|\.touchstone|serving\/client\/dist)$/;

let dir: string;
let bin: string;
let tarball: string;
let packed: string[];
let seller: Server;
let shop: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "installed-"));
  const tree = join(dir, "tree");
  cpSync(ROOT, tree, { recursive: true, filter: (path) => !NEVER_COPIED.test(relative(ROOT, path)) });
  symlinkSync(join(ROOT, "node_modules"), join(tree, "node_modules"));
  for (const file of LITTER) {
    mkdirSync(join(tree, file, ".."), { recursive: true });
    writeFileSync(join(tree, file), `{"private_key":"${SECRET}"}`);
  }
  const said = execFileSync("npm", ["pack", "--json", "--silent", "--pack-destination", dir], {
    cwd: tree,
    encoding: "utf8",
  });
  const [pack] = JSON.parse(said.slice(said.indexOf("["))) as [{ filename: string; files: { path: string }[] }];
  tarball = join(dir, pack.filename);
  packed = pack.files.map(({ path }) => path);
  const prefix = join(dir, "prefix");
  const flags = ["--prefix", prefix, "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
  execFileSync("npm", ["install", "--global", ...flags, tarball], { stdio: ["ignore", "ignore", "inherit"] });
  const packages = join(prefix, "lib/node_modules/touchstone/node_modules");
  for (const part of COMPILED) cpSync(join(ROOT, "node_modules", part), join(packages, part), { recursive: true });
  bin = join(prefix, "bin/touchstone");
  const terms = Buffer.from(JSON.stringify({ x402Version: 2, accepts: [entry()] })).toString("base64");
  seller = createServer((_, response) => response.writeHead(402, { "payment-required": terms }).end("{}"));
  await once(seller.listen(0, "127.0.0.1"), "listening");
  shop = `http://shop.example:${(seller.address() as AddressInfo).port}/sum`;
});
afterAll(async () => {
  seller?.close();
  await rm(dir, { recursive: true, force: true });
});

/** Nothing of our own environment, and a folder without a project around it. */
const place = () => ({
  cwd: dir,
  env: {
    ...{ PATH: process.env.PATH ?? "", HOME: dir, TOUCHSTONE_DATA_DIR: join(dir, "data") },
    ...{ TOUCHSTONE_PORT: "0", TOUCHSTONE_STATUS_PORT: "0", TOUCHSTONE_LOG_LEVEL: "error" },
    ...{ TOUCHSTONE_ALLOW_LOOPBACK: "true", TOUCHSTONE_RESOLVE_TO: "127.0.0.1" },
  },
});

/** The installed command, as a shell finds it: by its first line. */
const run = (...args: string[]): Promise<{ code: number; out: string; err: string }> =>
  new Promise((done) => {
    execFile(bin, args, { ...place(), maxBuffer: 64 * 1024 * 1024 }, (error, out, err) =>
      done({ code: error ? Number(error.code ?? -1) : 0, out, err }),
    );
  });

/** What a command that ends well says as JSON. */
async function told<T>(...args: string[]): Promise<T> {
  const { code, out, err } = await run(...args, "--json");
  expect([args, code], `${out}${err}`).toEqual([args, 0]);
  return JSON.parse(out) as T;
}

test("the tarball holds what is built, and nothing that lay about", async () => {
  expect(packed).toContain("dist/touchstone.mjs");
  expect(packed).toContain("dist/THIRD-PARTY.txt");
  const outside = packed.filter((path) => !path.startsWith("dist/"));
  expect(outside.sort()).toEqual(["LICENSE", "README.md", "package.json"]);
  expect(packed.filter((path) => !/\.(?:mjs|sql|md|json|txt|csv|py|go)$/.test(path) && path !== "LICENSE")).toEqual([]);
  const litter = new Set(LITTER.flatMap((file) => [file, `dist/${file}`]));
  expect(packed.filter((path) => litter.has(path))).toEqual([]);
  const unpacked = join(dir, "unpacked");
  mkdirSync(unpacked);
  execFileSync("tar", ["xzf", tarball, "-C", unpacked]);
  const files = readdirSync(unpacked, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  expect(files.length).toBe(packed.length);
  for (const { parentPath, name } of files) {
    expect([name, readFileSync(join(parentPath, name), "latin1").includes(SECRET)]).toEqual([name, false]);
  }
});

test("it needs no tool of development, and says what a clone alone has", async () => {
  const packages = readdirSync(join(dir, "prefix/lib/node_modules/touchstone/node_modules"));
  for (const name of ["tsx", "typescript", "esbuild", "vitest", "viem"]) expect(packages).not.toContain(name);
  const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { version: string };
  expect(await run("--version")).toEqual({ code: 0, out: `${version}\n`, err: "" });
  expect((await run("--help")).out).toContain("touchstone [options] [command]");
  const demo = await run("start", "--market");
  expect(demo.code).toBe(EXIT.usage);
  expect(demo.err).toContain("the demo's market is not installed");
  expect(existsSync(join(dir, "data"))).toBe(false);
});

test("a seller is probed, graded, published, served, mirrored and audited", async () => {
  await told("keygen");
  const findings = await run("doctor", "--json");
  // It has neither a node of a chain nor wallets, and says so.
  expect([findings.code, findings.out]).toEqual([EXIT.unfit, expect.stringContaining("touchstone wallets new")]);
  const listed = join(dir, "listings.json");
  writeFileSync(listed, JSON.stringify([{ url: shop, method: "GET" }]));
  const probed = await told<{ states: object }>("observe", "--once", "--listings", listed);
  expect(probed.states).toEqual({ asked: 1 });
  await told("publish", "--once");
  await told("own", "--once");
  const { tree_size } = await told<{ tree_size: number }>("publish", "--once");
  expect(tree_size).toBeGreaterThan(1);
  const child = spawn(bin, ["serve"], { ...place(), stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  try {
    const url = await new Promise<string>((found, failed) => {
      let said = "";
      child.stdout.on("data", (more) => {
        said += more;
        const at = /Serving at (\S+)/.exec(said)?.[1];
        if (at) found(at);
      });
      child.once("exit", (code) => failed(new Error(`serve ended with ${code}: ${said}`)));
    });
    while ((await fetch(`${url}/readyz`)).status !== 200) await new Promise((done) => setTimeout(done, 100));
    const check = await fetch(`${url}/v1/check?url=${encodeURIComponent(shop)}`);
    expect([check.status, await check.json()]).toMatchObject([200, { band: "UNRATED" }]);
    // Files that lie below dist/: a page, the client.
    expect(await (await fetch(`${url}/docs/audit`)).text()).toContain("<h1");
    expect((await fetch(`${url}/client.mjs`)).status).toBe(200);
    // Two threads: a listing is looked at, and the protocol's own client reads it.
    const asked = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ url: shop }),
    };
    const look = await fetch(`${url}/v1/listings/validate`, asked);
    expect([look.status, await look.json()]).toMatchObject([200, { url: shop }]);
    const copy = join(dir, "copy");
    for (const words of [
      ["mirror", url, copy],
      ["audit", join(copy, "public")],
    ]) {
      const { code, out, err } = await run(...words);
      expect([words, code], `${out}${err}`).toEqual([words, EXIT.ok]);
    }
  } finally {
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  }
});
