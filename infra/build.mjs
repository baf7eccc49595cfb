// npm run build: the command line as plain JavaScript in dist/, which is packed, deployed and started by `npm start`.
// Our own sources are bundled, split so that a word loads only what it needs. Packages stay in node_modules, with their
// licences and native parts. Bundled modules lie flat in dist/; files that they read lie below it as in the project.
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { build } from "esbuild";

const ROOT = resolve(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");
const FRONT_DOOR = "touchstone.ts";
/** Threads: each is begun by its place beside the module that begins it. */
const THREADS = [
  "infra/egress/thread-half.mjs",
  "pipelines/1-observe/reading/read-worker.mjs",
  "serving/answers/stock-client-worker.mjs",
  "serving/work/brief/rank-worker.mjs",
];
/** What is opened as a file at run time. The child that reads strangers' documents may open its own folder alone. */
const FOLDERS = ["sql", "docs", "infra/deploy/s3", "pipelines/3-grade", "serving/work/extract"];
const OPENED =
  /^(?:sql\/.+\.sql|docs\/[\w-]+\.(?:md|mjs)|infra\/deploy\/s3\/[\w-]+\.json|pipelines\/3-grade\/grading-params\.json|serving\/work\/extract\/\w+\.mjs)$/;
/** The demo's market is of the clone: it needs development packages, reads its files in the project, and is not packed. */
const MARKET = "fixtures/market/main.mjs";

const pathsBelow = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));

/**
 * A module finds files beside itself by `new URL(.., import.meta.url)`, and that is where the bundle lies: the folder of
 * its source is put between. Threads bring the loader of TypeScript along, which what is built does not need.
 * @param root the folder that stands for the project, as seen from a bundled module
 */
const inPlace = (root) => ({
  name: "in-place",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^tsx\/esm\/api$/ }, () => ({ path: "tsx", namespace: "none" }));
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

/** @returns files by their path in dist/ */
async function bundled(options, root) {
  const { outputFiles } = await build({
    ...{ absWorkingDir: ROOT, outbase: ROOT, outdir: DIST, write: false, bundle: true, packages: "external" },
    ...{ platform: "node", format: "esm", target: "node20.19", keepNames: true, outExtension: { ".js": ".mjs" } },
    ...{ plugins: [inPlace(root)], logLevel: "warning", ...options },
  });
  return outputFiles.map(({ path, contents }) => [relative(DIST, path), Buffer.from(contents)]);
}

/** Whole or not at all: another run of this, or a process that starts from it, may be reading. */
function put(file, bytes) {
  if (existsSync(file) && readFileSync(file).equals(bytes)) return;
  mkdirSync(dirname(file), { recursive: true });
  const whole = `${file}.${process.pid}.new`;
  writeFileSync(whole, bytes);
  renameSync(whole, file);
}

/** Builds dist/; a file of it that did not change is not touched. @throws what esbuild says of a source */
export async function buildCommandLine() {
  const files = new Map([
    ...(await bundled({ entryPoints: [FRONT_DOOR, ...THREADS], splitting: true }, "./")),
    ...(existsSync(join(ROOT, MARKET)) ? await bundled({ entryPoints: [MARKET] }, "../../../") : []),
  ]);
  for (const [path, bytes] of files) {
    // Below dist/ itself such an address would be taken for another folder's.
    const isFlat = dirname(path) === "." || path === MARKET;
    if (!isFlat && bytes.includes("import.meta.url")) throw new Error(`${path} looks for files beside itself`);
  }
  for (const path of FOLDERS.flatMap((folder) => pathsBelow(join(ROOT, folder)))) {
    const name = relative(ROOT, path);
    if (OPENED.test(name)) files.set(name, readFileSync(path));
  }
  for (const [name, bytes] of files) put(join(DIST, name), bytes);
  for (const path of pathsBelow(DIST)) {
    if (!files.has(relative(DIST, path)) && !path.endsWith(".new")) rmSync(path);
  }
}

if (process.argv[1] === import.meta.filename) await buildCommandLine();
