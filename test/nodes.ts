import { execFile, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

/**
 * The other releases of Node that package.json admits: what is computed (canonical text, keys, tree, grading, record), what
 * meets the network, the embedded log, the image's commands, from a key to an answer served, and the client as it is
 * installed. `npm test` tries the release that it runs under, whole.
 *
 * Each release comes as its package from the registry, headers included. All native packages are N-API, one build for all,
 * but better-sqlite3: it is compiled here for each release, without optimization and with SQLite's own assertions.
 */
const TRIED = [20, 22, 24];
/**
 * From 24.19 on the headers of Node 24 make better-sqlite3 12 abort the process when a statement is collected as garbage
 * (nodejs/node issue 65446); its release 13, which needs Node 22, does not use them.
 */
const NEWEST: Readonly<Record<number, string>> = { 24: "24.18" };
const SUITES = [
  ...["infra/canonical", "infra/config", "infra/keys/", "infra/tree/formats", "infra/tree/vectors", "infra/egress/"],
  ...["infra/store/directory", "infra/log/embedded", "pipelines/record/"],
  ...["pipelines/3-grade/grade-vectors", "pipelines/3-grade/functions", "pipelines/3-grade/hold", "deploy/image"],
  "serving/client/portable",
].map((name) => `test/${name}`);
const PARTS = ["commands", "docs", "fixtures", "infra", "pipelines", "serving", "sql", "test"];
const FILES = ["touchstone.ts", "tsconfig.json", "package.json", "package-lock.json", "vitest.config.ts", "LICENSE"];

const ROOT = resolve(import.meta.dirname, "..");
const said = process.argv.slice(2).map(Number);
const own = Number(process.versions.node.split(".")[0]);
const releases = said.length > 0 ? said : TRIED.filter((release) => release !== own);

/** A step of a release's tests, in sight. @throws when it fails */
function run(cwd: string, command: string, args: readonly string[], env: NodeJS.ProcessEnv): void {
  const { status, error } = spawnSync(command, args, { cwd, env, stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${error?.message ?? `ended with ${status}`}`);
}

/** A step of what comes before, beside those of other releases. @throws with everything that it said */
async function quietly(cwd: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<void> {
  try {
    await promisify(execFile)("npm", args, { cwd, env, maxBuffer: 64 * 1024 * 1024 });
  } catch (error) {
    const { message, stdout, stderr } = error as Error & { stdout?: string; stderr?: string };
    throw new Error(`${cwd}: ${message}\n${stdout ?? ""}${stderr ?? ""}`);
  }
}

/** An environment in which `node` is this one. */
const under = (node: string) => ({ ...process.env, PATH: `${join(node, "bin")}:${process.env.PATH}` });

/** The folder of a release, with `bin/node` and its headers. */
async function fetched(release: number, into: string): Promise<string> {
  const name = `node-${process.platform}-${process.arch}`;
  const wanted = `${name}@${NEWEST[release] ?? release}`;
  await quietly(into, ["install", "--no-save", "--no-package-lock", "--ignore-scripts", "--silent", wanted]);
  return join(into, "node_modules", name);
}

/** A copy of the project whose packages are ours, but for the one that is bound to a release. @returns where it is */
async function projectFor(node: string, into: string): Promise<string> {
  mkdirSync(join(into, "node_modules"), { recursive: true });
  for (const one of [...PARTS, ...FILES]) cpSync(join(ROOT, one), join(into, one), { recursive: true });
  const theirs = join(ROOT, "node_modules");
  for (const name of readdirSync(theirs)) {
    if (name !== "better-sqlite3") symlinkSync(join(theirs, name), join(into, "node_modules", name));
  }
  const sqlite = join(into, "node_modules/better-sqlite3");
  cpSync(join(theirs, "better-sqlite3"), sqlite, { recursive: true });
  rmSync(join(sqlite, "build"), { recursive: true, force: true });
  await quietly(sqlite, ["run", "--silent", "build-debug"], { ...under(node), npm_config_nodedir: node });
  return into;
}

const began = performance.now();
const seconds = () => Math.round((performance.now() - began) / 1000);
const dirs = releases.map((release) => mkdtempSync(join(tmpdir(), `node-${release}-`)));
try {
  // A compiler takes one core, and a registry none: they are made ready together, and tried one after the other.
  const ready = await Promise.all(
    releases.map(async (release, n) => {
      const node = await fetched(release, dirs[n]!);
      return { release, node, app: await projectFor(node, join(dirs[n]!, "app")) };
    }),
  );
  process.stdout.write(`Node ${releases.join(" and ")}: fetched and compiled in ${seconds()} s\n`);
  for (const { release, node, app } of ready) {
    run(app, "node", ["--version"], under(node));
    run(app, "node", ["node_modules/vitest/vitest.mjs", "run", ...SUITES], under(node));
    process.stdout.write(`Node ${release}: ${seconds()} s so far\n`);
  }
} finally {
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
}
