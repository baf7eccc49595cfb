import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

/**
 * The image without a builder: what the Dockerfile copies, copied into an empty folder, with the packages that `npm ci`
 * puts beside it; and every role's command started there by the entry point's own words. What is imported and not
 * copied shows here.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const DOCKERFILE = readFileSync(join(ROOT, "infra/deploy/Dockerfile"), "utf8");
const dir = mkdtempSync(join(tmpdir(), "image-"));
const app = join(dir, "app");
const data = join(dir, "data");
const running = new Set<ChildProcess>();

/** Sources and destination of each COPY out of the project. */
const copies = [...DOCKERFILE.matchAll(/^COPY (?!--)(.+)$/gm)].map(([, words]) => {
  const all = words!.split(/\s+/);
  return { from: all.slice(0, -1), to: all.at(-1)! };
});
const [, entry] = /^ENTRYPOINT (\[.+\])$/m.exec(DOCKERFILE)!;
const [program, ...words] = JSON.parse(entry!) as [string, ...string[]];

beforeAll(() => {
  mkdirSync(app);
  mkdirSync(data, { mode: 0o700 });
  for (const { from, to } of copies) {
    for (const source of from) {
      // As COPY does it: a file goes into the folder, of a folder its contents.
      const target = to.endsWith("/") ? join(app, to, source) : join(app, to);
      cpSync(join(ROOT, source), target, { recursive: true });
    }
  }
  symlinkSync(join(ROOT, "node_modules"), join(app, "node_modules"));
});
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
  const copied = copies.flatMap(({ from }) => from);
  expect(copied).not.toContain(".");
  for (const never of ["node_modules", ".git", ".touchstone", "test"]) expect(copied).not.toContain(never);
  for (const source of copied) expect([source, existsSync(join(ROOT, source))]).toEqual([source, true]);
  // The builder is sent exactly that.
  const ignore = readFileSync(join(ROOT, "infra/deploy/Dockerfile.dockerignore"), "utf8").split("\n");
  expect(ignore.filter((line) => line && !line.startsWith("#"))).toEqual(["*", ...copied.map((one) => `!${one}`)]);
  expect(/^ENV TOUCHSTONE_DATA_DIR=(\S+)$/m.exec(DOCKERFILE)?.[1]).toBe("/data");
});

test("every command shows its help from there", async () => {
  const help = await runs("--help");
  for (const role of ["observe", "own", "publish", "serve", "keygen", "buckets"]) expect(help).toContain(`  ${role} `);
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

  const replica = begin(["serve", "--from", join(data, "public")], { TOUCHSTONE_PORT: "0" });
  const url = await address(replica, /Serving at (\S+)/);
  for (const path of ["/readyz", "/metrics", "/checkpoint", "/"]) {
    const answered = await fetch(url + path);
    expect([path, answered.status]).toEqual([path, 200]);
  }
  replica.child.kill("SIGTERM");
  expect(await replica.ended, replica.said()).toBe(0);
}, 1_800_000);

test("the demo's world and the contracts of its chain are there", () => {
  for (const file of ["fixtures/market/main.ts", "infra/rails/chain/artefacts", "docs/deploy.md", "sql"]) {
    expect([file, existsSync(join(app, file))]).toEqual([file, true]);
  }
});
