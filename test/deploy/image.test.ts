import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EXIT } from "../../commands/exit.ts";

/**
 * The image without a builder of images: what its last stage takes from the build, in an empty folder, with the packages
 * that `npm prune --omit=dev` leaves; and every role's command started there by the entry point's own words. What is
 * imported and not built in, or only there for development, shows here, under every release of Node
 * (`npm run test:nodes`). The image itself is built and run by `npm run test:deploy`.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const DOCKERFILE = readFileSync(join(ROOT, "infra/deploy/Dockerfile"), "utf8");
const dir = mkdtempSync(join(tmpdir(), "image-"));
const app = join(dir, "app");
const data = join(dir, "data");
const running = new Set<ChildProcess>();

/** What each COPY out of the project sends to the builder. */
const copied = [...DOCKERFILE.matchAll(/^COPY (?!--)(.+)$/gm)].flatMap(([, words]) => words!.split(/\s+/).slice(0, -1));
/** What the last stage takes out of the build, but for packages and what only the build can write. */
const built = [...DOCKERFILE.matchAll(/^COPY --from=build (.+)$/gm)]
  .flatMap(([, words]) => words!.split(/\s+/).slice(0, -1))
  .map((path) => path.replace("/opt/touchstone/", ""))
  .filter((path) => !["node_modules", "sbom.cdx.json"].includes(path));
const [, entry] = /^ENTRYPOINT (\[.+\])$/m.exec(DOCKERFILE)!;
const [program, ...words] = JSON.parse(entry!) as [string, ...string[]];

beforeAll(() => {
  mkdirSync(app);
  mkdirSync(data, { mode: 0o700 });
  const build = spawnSync(process.execPath, ["infra/build.mjs"], { cwd: ROOT, encoding: "utf8" });
  expect(build.status, build.stderr).toBe(0);
  for (const path of built) cpSync(join(ROOT, path), join(app, path), { recursive: true });
  installed(join(app, "node_modules"));
});
/** Links to our packages, but for those that the lock marks as of development alone. */
function installed(into: string): void {
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
    packages: Record<string, { dev?: boolean }>;
  };
  for (const [path, { dev }] of Object.entries(packages)) {
    const [, name, ...deeper] = path.split("node_modules/");
    // Packages of a package come with it; those of other platforms are not there.
    if (dev || !name || deeper.length > 0 || !existsSync(join(ROOT, path))) continue;
    mkdirSync(dirname(join(into, name)), { recursive: true });
    symlinkSync(join(ROOT, path), join(into, name));
  }
}
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
});

interface Run {
  child: ChildProcess;
  said: () => string;
  ended: Promise<number | null>;
}

/** A command as the container starts it: the image's folder, its variable, and nothing of our own environment. */
function begin(args: readonly string[], more: Record<string, string> = {}): Run {
  expect(program).toBe("node");
  const env = { PATH: process.env.PATH ?? "", HOME: data, TOUCHSTONE_DATA_DIR: data, ...more };
  const child = spawn(process.execPath, [...words, ...args], { cwd: app, env });
  running.add(child);
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (bytes: Buffer) => {
      said += bytes.toString();
    });
  }
  const ended = new Promise<number | null>((done) => {
    child.once("close", (code) => {
      running.delete(child);
      done(code);
    });
  });
  return { child, said: () => said, ended };
}

async function runs(...args: string[]): Promise<string> {
  const { said, ended } = begin(args);
  expect(await ended, said()).toBe(0);
  return said();
}

/** Waits for a line with an address, with a bound that only a hang reaches. */
async function address(run: Run, line: RegExp): Promise<string> {
  for (let n = 0; n < 20_000 && run.child.exitCode === null; n++) {
    const [, url] = line.exec(run.said()) ?? [];
    if (url) return url;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`no address: ${run.said()}`);
}

test("the image has what is run, and nothing of the machine that builds it", () => {
  expect(copied).not.toContain(".");
  for (const never of ["node_modules", ".git", ".touchstone", "test", "fixtures"]) expect(copied).not.toContain(never);
  for (const source of copied) expect([source, existsSync(join(ROOT, source))]).toEqual([source, true]);
  // The builder is sent exactly that.
  const ignore = readFileSync(join(ROOT, "infra/deploy/Dockerfile.dockerignore"), "utf8").split("\n");
  const sent = copied.filter((one) => !one.startsWith("serving/")).map((one) => `!${one}`);
  expect(ignore.filter((line) => line && !line.startsWith("#"))).toEqual(["*", ...sent, "**/.env"]);
  expect(built).toEqual(["dist", "package.json"]);
  expect(/^ENV TOUCHSTONE_DATA_DIR=(\S+) /m.exec(DOCKERFILE)?.[1]).toBe("/data");
});

test("every command shows its help from there", async () => {
  const help = await runs("--help");
  for (const role of ["observe", "own", "publish", "serve", "keygen", "buckets"]) expect(help).toContain(`  ${role} `);
  // V8 says so on stderr of a setting that it does not know: each release of Node is asked.
  expect(help).not.toContain("unrecognized flag");
}, 900_000);

test("keys are made, an owner and a publisher do a turn, and what is published is served", async () => {
  await runs("keygen");
  expect(await runs("publish", "--once", "--json")).toContain('"tree_size":1');
  expect(await runs("own", "--once", "--json")).toContain('"run":null');
  const publisher = begin(["publish"], { TOUCHSTONE_STATUS_PORT: "0" });
  const status = await address(publisher, /Status at (\S+)\/health/);
  for (let n = 0; n < 9_000; n++) {
    if ((await fetch(`${status}/health`)).ok) break;
    await new Promise((done) => setTimeout(done, 100));
  }
  expect(await (await fetch(`${status}/health`)).json()).toMatchObject({ role: "publish", ok: true });
  publisher.child.kill("SIGTERM");
  expect(await publisher.ended, publisher.said()).toBe(0);

  const ports = { TOUCHSTONE_PORT: "0", TOUCHSTONE_STATUS_PORT: "0" };
  const replica = begin(["serve", "--from", join(data, "public")], ports);
  const url = await address(replica, /Serving at (\S+)/);
  const shown = await address(replica, /Status at (\S+)\/health/);
  for (const address of [`${url}/readyz`, `${shown}/metrics`, `${url}/checkpoint`, `${url}/`]) {
    const answered = await fetch(address);
    expect([address, answered.status]).toEqual([address, 200]);
  }
  expect((await fetch(`${url}/metrics`)).status).toBe(404);
  replica.child.kill("SIGTERM");
  expect(await replica.ended, replica.said()).toBe(0);
}, 1_800_000);

test("the demo is not there, and who asks for it is told so, before anything is made", async () => {
  // (The MCP SDK of the conformance tests is an optional peer of mppx, so npm keeps it, and with it @hono/node-server.)
  for (const name of ["vitest", "@foundry-rs/anvil", "axe-core", "@redocly/openapi-core", "@biomejs/biome"]) {
    expect([name, existsSync(join(app, "node_modules", name))]).toEqual([name, false]);
  }
  const own = join(dir, "none");
  const asked = begin(["start", "--market", "--once"], { TOUCHSTONE_DATA_DIR: own });
  expect(await asked.ended).toBe(EXIT.usage);
  expect(asked.said()).toMatch(/^touchstone: the demo's market is not installed .* start without --market, or a role/);
  expect(existsSync(own)).toBe(false);
}, 900_000);

test("it is built of packages that are no development, each with a hash, on a base with a digest", () => {
  const steps = DOCKERFILE.replaceAll(/^#.*\n/gm, "")
    .trim()
    .split("\n");
  expect(steps.filter((line) => line.startsWith("RUN npm "))).toEqual([
    "RUN npm ci --no-audit --no-fund",
    "RUN npm run build",
    "RUN npm sbom --sbom-format=cyclonedx > /tmp/all.cdx.json",
    "RUN npm prune --omit=dev --no-audit --no-fund",
  ]);
  const bases = steps.filter((line) => line.startsWith("FROM "));
  const base = "$" + "{NODE_IMAGE}";
  expect(bases).toEqual([`FROM ${base} AS build`, `FROM ${base} AS runtime`, "FROM scratch"]);
  // Nobody can look a digest up in a test: one that stands here is one that somebody made up or forgot.
  expect(steps[0]).toBe("ARG NODE_IMAGE=node:22-bookworm-slim@sha256:missing--say--build-arg-NODE_IMAGE");
  const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { version: string };
  expect(steps).toContain(`ARG VERSION=${version}`);
  // The line that holds what was installed against the lock, on a whole lock and on one that lacks a hash.
  const [line] = steps.filter((step) => step.startsWith("RUN node -e "));
  const checkPackages = (packages: object) => {
    const folder = mkdtempSync(join(dir, "lock-"));
    mkdirSync(join(folder, "node_modules"));
    writeFileSync(join(folder, "node_modules/.package-lock.json"), JSON.stringify({ packages }));
    return spawnSync("/bin/sh", ["-c", line!.slice("RUN ".length)], { cwd: folder, encoding: "utf8" });
  };
  expect(checkPackages({ "node_modules/a": { integrity: "sha512-x" } })).toMatchObject({ status: 0, stderr: "" });
  const bare = checkPackages({ "node_modules/a": { integrity: "sha512-x" }, "node_modules/b": { version: "1.0.0" } });
  expect(bare).toMatchObject({ status: 1, stderr: "no hash in package-lock.json of node_modules/b\n" });
});
