import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";

/**
 * What tests start as processes. The command line is the built one, as users have it, built before its first start. Children
 * of tests' own are built in one piece each by a suite whose config names this file as its global setup: the loader reads,
 * resolves and checks some five hundred files at every start. Without it they are started from their sources.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const COMMAND_LINE = "touchstone.ts";
const PROGRAMS = [
  "test/helpers/selling-process.ts",
  "test/cluster/owned-child.ts",
  "test/cluster/role-child.ts",
  "test/pipelines/5-archive/archive-child.ts",
  "test/pipelines/6-notify/watcher-child.ts",
] as const;
type Program = typeof COMMAND_LINE | (typeof PROGRAMS)[number];

let isBuilt = process.env.BUILT_PROGRAMS !== undefined;

/** The folder of the built command line, up to date with its sources. */
export function builtDist(): string {
  if (!isBuilt) execFileSync(process.execPath, [join(ROOT, "infra/build.mjs")], { stdio: "inherit" });
  isBuilt = true;
  return join(ROOT, "dist");
}

/** Arguments of node that start this program: its own follow. */
export function runs(program: Program): string[] {
  if (program === COMMAND_LINE) return [join(builtDist(), "touchstone.mjs")];
  const built = process.env.BUILT_PROGRAMS;
  return built ? [join(built, nameOf(program))] : ["--import", "tsx", join(ROOT, program)];
}

/** Packages that stay where they are: native ones, those that read files of their own, and those of CommonJS. */
const ASIDE = [
  "@duckdb/* better-sqlite3 zstd-napi tsx esbuild solc @foundry-rs/* @redocly/* vitest",
  "@aws-sdk/* kafkajs parquetjs-lite undici pino prom-client ajv ajv-formats ajv/* commander node-cron yaml",
  "linkedom unpdf @mozilla/readability canonicalize badge-maker yauzl markdown-it csv-parse csv-parse/sync",
].flatMap((names) => names.split(" "));

const nameOf = (program: string): string => program.replaceAll("/", "-").replace(/\.ts$/, ".mjs");

/** Modules that look for files beside themselves still find them, and a program that asks whether it was started was. */
const whereTheyLie: Plugin = {
  name: "where-they-lie",
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const places = { url: pathToFileURL(path).href, dirname: dirname(path), filename: path };
      const isProgram = PROGRAMS.some((program) => join(ROOT, program) === path);
      const started = isProgram ? `process.argv[1] = ${JSON.stringify(path)};\n` : "";
      const source = started + readFileSync(path, "utf8").replace(/^#!.*/, "");
      const contents = source.replace(/\bimport\.meta\.(url|dirname|filename)\b/g, (_, name: keyof typeof places) =>
        JSON.stringify(places[name]),
      );
      return { contents, loader: "ts" };
    });
  },
};

/** Before a run of a suite. @returns what comes after it */
export async function setup(): Promise<() => Promise<void>> {
  builtDist();
  const { build } = await import("esbuild");
  // Inside of the project, where packages are found.
  const cache = join(ROOT, ".cache");
  await mkdir(cache, { recursive: true });
  const outdir = await mkdtemp(join(cache, "programs-"));
  await build({
    entryPoints: PROGRAMS.map((program) => ({ in: join(ROOT, program), out: nameOf(program).replace(/\.mjs$/, "") })),
    ...{ outdir, outExtension: { ".js": ".mjs" }, bundle: true, splitting: true, external: ASIDE },
    ...{ platform: "node", format: "esm", target: `node${process.versions.node}`, keepNames: true },
    plugins: [whereTheyLie],
  });
  process.env.BUILT_PROGRAMS = outdir;
  return () => rm(outdir, { recursive: true, force: true });
}
