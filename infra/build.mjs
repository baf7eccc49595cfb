// npm run build: bundles the command line as JavaScript into dist/, which is packed, deployed, and run by `npm start`.
// All packages are bundled except the `dependencies` of package.json, which are installed beside dist/: packages with
// native code, packages in CommonJS, and packages that open files of their own. The bundle is split into chunks, so
// that a command loads only the code that it needs. Chunks stand directly in dist/. Files that they open stand below
// dist/ under the path that they have in the project.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { build } from "esbuild";

const ROOT = resolve(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");
/** Folder in which each file is written first, and from which it is then moved to dist/. */
const TEMP_FOLDER = join(ROOT, ".cache");
/**
 * Text of the entry file. It installs the signal handler before it loads anything else. If both modules were one
 * bundle, all chunks would be loaded before the handler is installed.
 */
const ENTRY = `#!/usr/bin/env node
import "./commands/early-stop.mjs";
await import("./command-line.mjs");
`;
const PROGRAM = [
  { in: "touchstone.ts", out: "command-line" },
  { in: "commands/early-stop.ts", out: "commands/early-stop" },
];
/** Entry files of worker threads. The module that starts a thread finds the thread's file by its relative path. */
const THREADS = [
  "infra/egress/thread-half.mjs",
  "pipelines/1-observe/reading/read-worker.mjs",
  "serving/answers/stock-client-worker.mjs",
  "serving/tables/words-worker.mjs",
  "serving/work/brief/rank-worker.mjs",
].map((file) => ({ in: file, out: file.slice(0, -".mjs".length) }));
/** Folders with files that are opened at run time. */
const FOLDERS = ["sql", "docs", "infra/deploy/s3", "pipelines/3-grade", "serving/work/extract", "serving/client/dist"];
/** Matches the files below FOLDERS that are copied to dist/. */
const RUNTIME_FILES =
  /^(?:sql\/.+\.sql|docs\/[\w-]+\.(?:md|mjs|py|go)|infra\/deploy\/s3\/[\w-]+\.json|pipelines\/3-grade\/grading-params\.json|serving\/work\/extract\/\w+\.mjs|serving\/client\/dist\/(?:client|prove)\.mjs)$/;
/**
 * Entry file of the demo's market. It is built only in a clone of the project, since it needs development packages, and
 * files that the published package does not hold.
 */
const MARKET = "fixtures/market/main.mjs";

/** The script that builds the client's package, one file of which the service serves. */
const CLIENT_BUILD = "serving/client/build.mjs";

/**
 * Modules that are replaced by an empty stub, because they are never used: the TypeScript loader, and the WebSockets of
 * viem.
 */
const STUBBED = /^(?:tsx\/esm\/api|isows)$/;
const { dependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const INSTALLED = Object.keys(dependencies).flatMap((name) => [name, `${name}/*`]);

const pathsBelow = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));

/**
 * An esbuild plugin that corrects `new URL(.., import.meta.url)`. In a bundle, `import.meta.url` is the address of the
 * bundle and not of the source file, so the plugin inserts the source file's folder.
 * @param root the project's folder, relative to a bundled module
 */
const rewriteFileUrls = (root) => ({
  name: "in-place",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: STUBBED }, ({ path }) => ({ path, namespace: "none" }));
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

/** Runs esbuild. @returns files by their path in dist/, and esbuild's metadata about their inputs */
async function bundle(options, root) {
  const { outputFiles, metafile } = await build({
    ...{ absWorkingDir: ROOT, outbase: ROOT, outdir: DIST, write: false, bundle: true, external: INSTALLED },
    ...{ platform: "node", format: "esm", target: "node20.19", keepNames: true, outExtension: { ".js": ".mjs" } },
    ...{ plugins: [rewriteFileUrls(root)], metafile: true, logLevel: "warning", ...options },
    logOverride: { "ignored-bare-import": "silent" },
  });
  const files = outputFiles.map(({ path, contents }) => [relative(DIST, path), Buffer.from(contents)]);
  return { files, outputs: Object.values(metafile.outputs) };
}

/**
 * Returns the names, versions and licence texts of all bundled packages, which their licences require to be shipped.
 */
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

/**
 * Writes a file atomically, since another build or a starting process may read it at the same time. Does nothing when
 * the file has these bytes already.
 */
function writeIfChanged(file, bytes) {
  if (existsSync(file) && readFileSync(file).equals(bytes)) return;
  for (const folder of [TEMP_FOLDER, dirname(file)]) mkdirSync(folder, { recursive: true });
  const whole = join(TEMP_FOLDER, String(process.pid));
  writeFileSync(whole, bytes);
  renameSync(whole, file);
}

/** Builds the command line and, in a clone, the market. @returns the files of dist/ by path @throws esbuild's errors */
async function buildAll() {
  const product = await bundle({ entryPoints: [...PROGRAM, ...THREADS], splitting: true }, "./");
  const isClone = existsSync(join(ROOT, MARKET));
  const market = isClone ? await bundle({ entryPoints: [MARKET], packages: "external" }, "../../../") : { files: [] };
  const texts = { "touchstone.mjs": ENTRY, "THIRD-PARTY.txt": notices(product.outputs) };
  const written = Object.entries(texts).map(([name, text]) => [name, Buffer.from(text)]);
  const files = new Map([...product.files, ...market.files, ...written]);
  for (const [path, bytes] of product.files) {
    if (dirname(path) !== "." && bytes.includes("import.meta.url")) {
      throw new Error(`${path} is not flat in dist/ and looks for files beside itself`);
    }
    const required = /\b__require\("([^"]+)"\)/.exec(bytes);
    if (required)
      throw new Error(`${path} holds CommonJS that asks for ${required[1]}: its package has to be a dependency`);
  }
  // The demo's register of companies is needed only with the market.
  for (const name of isClone
    ? ["golden-copy", "domains", "relationships", "exceptions"].map((file) => `fixtures/register/${file}.csv`)
    : [])
    files.set(name, readFileSync(join(ROOT, name)));
  execFileSync(process.execPath, [CLIENT_BUILD, "--script"], { cwd: ROOT, stdio: "inherit" });
  for (const path of FOLDERS.flatMap((folder) => pathsBelow(join(ROOT, folder)))) {
    const name = relative(ROOT, path);
    if (RUNTIME_FILES.test(name)) files.set(name, readFileSync(path));
  }
  return files;
}

const files = await buildAll();
for (const [name, bytes] of files) writeIfChanged(join(DIST, name), bytes);
for (const path of pathsBelow(DIST)) if (!files.has(relative(DIST, path))) rmSync(path);
