// npm run build: the command line as plain JavaScript in dist/, which is packed, deployed and started by `npm start`.
// Our sources are bundled with every package but those that package.json calls dependencies, split so that a word loads
// only what it needs. Dependencies are installed beside dist/: native ones, those of CommonJS, and those whose files are read
// one by one. Bundled modules lie flat in dist/; files that they open lie below it as in the project.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { build } from "esbuild";

const ROOT = resolve(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");
/** Where a file is written before it takes its place. */
const ASIDE = join(ROOT, ".cache");
/** What listens for signals runs before anything else is loaded; a bundle would load its chunks first. */
const STARTED = `#!/usr/bin/env node
import "./commands/early-stop.mjs";
await import("./command-line.mjs");
`;
const PROGRAM = [
  { in: "touchstone.ts", out: "command-line" },
  { in: "commands/early-stop.ts", out: "commands/early-stop" },
];
/** Threads: each is begun by its place beside the module that begins it. */
const THREADS = [
  "infra/egress/thread-half.mjs",
  "pipelines/1-observe/reading/read-worker.mjs",
  "serving/answers/stock-client-worker.mjs",
  "serving/work/brief/rank-worker.mjs",
].map((file) => ({ in: file, out: file.slice(0, -".mjs".length) }));
/** What is opened as a file at run time. The child that reads strangers' documents may open its own folder alone. */
const FOLDERS = ["sql", "docs", "infra/deploy/s3", "pipelines/3-grade", "serving/work/extract", "serving/client/dist"];
const OPENED =
  /^(?:sql\/.+\.sql|docs\/[\w-]+\.(?:md|mjs)|infra\/deploy\/s3\/[\w-]+\.json|pipelines\/3-grade\/grading-params\.json|serving\/work\/extract\/\w+\.mjs|serving\/client\/dist\/client\.mjs)$/;
/** The demo's market is of the clone: it needs development packages, reads its files in the project, and is not packed. */
const MARKET = "fixtures/market/main.mjs";

/** Makes the file of the client's package, which the service serves. */
const CLIENT = "serving/client/build.mjs";

/** The loader of TypeScript; the sockets of viem, which nothing of ours opens. */
const NOT_BUILT = /^(?:tsx\/esm\/api|isows)$/;
const { dependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const INSTALLED = Object.keys(dependencies).flatMap((name) => [name, `${name}/*`]);

const pathsBelow = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));

/**
 * A module finds files beside itself by `new URL(.., import.meta.url)`, and that is where the bundle lies: the folder of
 * its source is put between.
 * @param root the folder that stands for the project, as seen from a bundled module
 */
const inPlace = (root) => ({
  name: "in-place",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: NOT_BUILT }, ({ path }) => ({ path, namespace: "none" }));
    onLoad({ filter: /./, namespace: "none" }, () => ({ contents: "export const register = () => {};" }));
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const folder = JSON.stringify(`${root}${relative(ROOT, dirname(path))}/`);
      const contents = readFileSync(path, "utf8").replace(
        /(new URL\([^()]+), import\.meta\.url\)/g,
        `$1, new URL(${folder}, import.meta.url))`,
      );
      return { contents, loader: "ts" };
    });
  },
});

/** @returns files by their path in dist/, and what esbuild says that they were made of */
async function bundled(options, root) {
  const { outputFiles, metafile } = await build({
    ...{ absWorkingDir: ROOT, outbase: ROOT, outdir: DIST, write: false, bundle: true, external: INSTALLED },
    ...{ platform: "node", format: "esm", target: "node20.19", keepNames: true, outExtension: { ".js": ".mjs" } },
    ...{ plugins: [inPlace(root)], metafile: true, logLevel: "warning", ...options },
    logOverride: { "ignored-bare-import": "silent" },
  });
  const files = outputFiles.map(({ path, contents }) => [relative(DIST, path), Buffer.from(contents)]);
  return { files, outputs: Object.values(metafile.outputs) };
}

/** Names, versions and licences of the packages that a bundle holds, as those licences ask for it. */
function notices(outputs) {
  const inputs = outputs.flatMap(({ inputs }) =>
    Object.entries(inputs).filter(([, { bytesInOutput }]) => bytesInOutput > 0),
  );
  const folders = inputs.map(([path]) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]).filter(Boolean);
  const parts = [...new Set(folders)].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8"));
    const texts = readdirSync(join(ROOT, folder)).filter((file) => /^(?:licen[cs]e|notice|copying)/i.test(file));
    return [`${name}@${version} (${license})`, ...texts.map((file) => readFileSync(join(ROOT, folder, file), "utf8"))];
  });
  return parts.map((part) => part.map((text) => text.trim()).join("\n\n")).join(`\n\n${"-".repeat(80)}\n\n`);
}

/** Whole or not at all: another run of this, or a process that starts from it, may be reading. */
function put(file, bytes) {
  if (existsSync(file) && readFileSync(file).equals(bytes)) return;
  for (const folder of [ASIDE, dirname(file)]) mkdirSync(folder, { recursive: true });
  const whole = join(ASIDE, String(process.pid));
  writeFileSync(whole, bytes);
  renameSync(whole, file);
}

/** The command line, and the market where it is. @returns what dist/ holds, by path @throws what esbuild says of a source */
async function made() {
  const product = await bundled({ entryPoints: [...PROGRAM, ...THREADS], splitting: true }, "./");
  const isClone = existsSync(join(ROOT, MARKET));
  const market = isClone ? await bundled({ entryPoints: [MARKET], packages: "external" }, "../../../") : { files: [] };
  const texts = { "touchstone.mjs": STARTED, "THIRD-PARTY.txt": notices(product.outputs) };
  const written = Object.entries(texts).map(([name, text]) => [name, Buffer.from(text)]);
  const files = new Map([...product.files, ...market.files, ...written]);
  for (const [path, bytes] of product.files) {
    if (dirname(path) !== "." && bytes.includes("import.meta.url")) {
      throw new Error(`${path} is not flat in dist/ and looks for files beside itself`);
    }
    const asked = /\b__require\("([^"]+)"\)/.exec(bytes);
    if (asked) throw new Error(`${path} holds CommonJS that asks for ${asked[1]}: its package has to be a dependency`);
  }
  execFileSync(process.execPath, [CLIENT, "--script"], { cwd: ROOT, stdio: "inherit" });
  for (const path of FOLDERS.flatMap((folder) => pathsBelow(join(ROOT, folder)))) {
    const name = relative(ROOT, path);
    if (OPENED.test(name)) files.set(name, readFileSync(path));
  }
  return files;
}

// What did not change is not touched: somebody may be running it.
const files = await made();
for (const [name, bytes] of files) put(join(DIST, name), bytes);
for (const path of pathsBelow(DIST)) if (!files.has(relative(DIST, path))) rmSync(path);
