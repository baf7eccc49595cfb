import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/**
 * The other releases of Node that package.json admits: what is computed (canonical text, keys, tree, grading, record), what
 * meets the network, the embedded log, and the image's commands, from a key to an answer served. `npm test` tries the
 * release that it runs under, whole.
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
].map((name) => `test/${name}`);
const PARTS = ["commands", "docs", "fixtures", "infra", "pipelines", "serving", "sql", "test"];
const FILES = ["touchstone.ts", "tsconfig.json", "package.json", "package-lock.json", "vitest.config.ts"];

const ROOT = resolve(import.meta.dirname, "..");
const said = process.argv.slice(2).map(Number);
const own = Number(process.versions.node.split(".")[0]);
const releases = said.length > 0 ? said : TRIED.filter((release) => release !== own);

function run(cwd: string, command: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): void {
  const { status, error } = spawnSync(command, args, { cwd, env, stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${error?.message ?? `ended with ${status}`}`);
}

/** An environment in which `node` is this one. */
const under = (node: string) => ({ ...process.env, PATH: `${join(node, "bin")}:${process.env.PATH}` });

/** The folder of a release, with `bin/node` and its headers. */
function fetched(release: number, into: string): string {
  const name = `node-${process.platform}-${process.arch}`;
  run(into, "npm", [
    "install",
    "--no-save",
    "--no-package-lock",
    "--ignore-scripts",
    "--silent",
    `${name}@${NEWEST[release] ?? release}`,
  ]);
  return join(into, "node_modules", name);
}

/** A copy of the project whose packages are ours, but for the one that is bound to a release. */
function projectFor(node: string, into: string): void {
  mkdirSync(join(into, "node_modules"), { recursive: true });
  for (const one of [...PARTS, ...FILES]) cpSync(join(ROOT, one), join(into, one), { recursive: true });
  const theirs = join(ROOT, "node_modules");
  for (const name of readdirSync(theirs)) {
    if (name !== "better-sqlite3") symlinkSync(join(theirs, name), join(into, "node_modules", name));
  }
  const sqlite = join(into, "node_modules/better-sqlite3");
  cpSync(join(theirs, "better-sqlite3"), sqlite, { recursive: true });
  rmSync(join(sqlite, "build"), { recursive: true, force: true });
  run(sqlite, "npm", ["run", "--silent", "build-debug"], { ...under(node), npm_config_nodedir: node });
}

for (const release of releases) {
  const dir = mkdtempSync(join(tmpdir(), `node-${release}-`));
  const began = performance.now();
  try {
    const node = fetched(release, dir);
    const app = join(dir, "app");
    projectFor(node, app);
    run(app, "node", ["--version"], under(node));
    run(app, "node", ["node_modules/vitest/vitest.mjs", "run", ...SUITES], under(node));
    process.stdout.write(`Node ${release}: ${Math.round((performance.now() - began) / 1000)} s\n`);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
