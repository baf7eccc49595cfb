// npm run build: bundles the library into two files of plain JavaScript, dist/client.mjs and dist/proof.mjs, and its
// declarations into dist/client.d.mts and dist/proof.d.mts. These files are in the package. The service serves
// dist/client.mjs, and dist/prove.mjs, which is bundled for its pages. All files depend only on the sources and the
// lock file.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { build } from "esbuild";

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, "../..");
/** The library, and the proofs under a witness policy. The proofs are a second file, so that the first stays small. */
const ENTRIES = { client: join(HERE, "index.ts"), proof: join(HERE, "proof.ts") };
/** The proof of a card in a page (dist/prove.mjs). The service serves this file; the package does not contain it. */
const PAGE = { prove: join(ROOT, "serving/prove/page.mjs") };
const { name, version, license } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));

/**
 * Returns the text of the licence of an installed package.
 * @param folder path from the folder of the package's main file to the folder of its licence
 */
const licenceOf = (name, folder = ".") =>
  readFileSync(join(dirname(createRequire(import.meta.url).resolve(name)), folder, "LICENSE"), "utf8").trim();

/**
 * Returns the comment with the licences at the head of a file. @noble/ed25519 and fzstd require their licences in every
 * copy; canonicalize has the licence of this package, Apache-2.0.
 */
function licences(isPage) {
  const ed25519Licence = licenceOf("@noble/ed25519");
  const fzstdText = isPage ? `\n\nand fzstd, under this one:\n\n${licenceOf("fzstd", "..")}` : "";
  const ownText = `${name} ${version}, ${license} (https://www.apache.org/licenses/LICENSE-2.0). It holds canonicalize, under`;
  return `/*!\n${ownText} the same licence, and @noble/ed25519, under this one:\n\n${ed25519Licence}${fzstdText}\n*/`;
}

/** Replaces the module that reads the grading parameters from a file by one that contains them, for browsers. */
const inlinedParams = {
  name: "params",
  setup({ onLoad, onResolve }) {
    // No function that a page calls uses Node's modules, so esbuild may drop their imports.
    onResolve({ filter: /^node:/ }, ({ path }) => ({ path, external: true, sideEffects: false }));
    onLoad({ filter: /[\\/]params-file\.ts$/ }, ({ path }) => {
      const [, named] = /PARAMS_SHA256 = "([0-9a-f]{64})"/.exec(readFileSync(path, "utf8"));
      const text = readFileSync(join(dirname(path), "grading-params.json"), "utf8");
      const hash = createHash("sha256").update(text).digest("hex");
      if (hash !== named) throw new Error(`grading-params.json is ${hash}, the method needs ${named}`);
      const compact = JSON.stringify(JSON.parse(text));
      return {
        contents: `export const PARAMS_SHA256 = "${named}";\nexport const params = ${compact};\nexport const readParams = undefined;`,
        loader: "js",
      };
    });
  },
};

/** Writes a temporary file and renames it, so that a server or another build never reads half a file. */
function writeAtomically(file, text) {
  if (existsSync(file) && readFileSync(file, "utf8") === text) return;
  mkdirSync(dirname(file), { recursive: true });
  const whole = `${file}.${process.pid}.new`;
  writeFileSync(whole, text);
  renameSync(whole, file);
}

/**
 * Writes dist/client.mjs, dist/proof.mjs and dist/prove.mjs, in a fifth of a second.
 * @throws esbuild's error for a source or an import; Error for an import of a module of Node
 */
export async function buildScript(outdir = join(HERE, "dist")) {
  for (const [name, entry] of Object.entries({ ...ENTRIES, ...PAGE })) await buildEntry(name, entry, outdir);
}

async function buildEntry(name, entry, outdir) {
  const isPage = name in PAGE;
  const { outputFiles } = await build({
    ...{ absWorkingDir: ROOT, entryPoints: [entry], bundle: true, write: false, format: "esm" },
    // With platform `neutral` an import of a Node module is an error.
    ...{ platform: "neutral", mainFields: ["module", "main"], target: "es2022", logLevel: "warning" },
    ...{ charset: "utf8", legalComments: "none", banner: { js: licences(isPage) } },
    ...(isPage ? { plugins: [inlinedParams] } : {}),
  });
  if (/\bnode:|\bBuffer\b/.test(outputFiles[0].text)) throw new Error(`${name}.mjs imports a module of Node`);
  // The paths in esbuild's comments differ between machines, so these comments are removed.
  writeAtomically(join(outdir, `${name}.mjs`), outputFiles[0].text.replace(/^\/\/ \S+\.m?[jt]s\n/gm, ""));
}

/** Writes dist/client.d.mts and dist/proof.d.mts, in some seconds. @throws Error with the compiler's message */
export async function buildDeclarations(outdir = join(HERE, "dist")) {
  const { generateDtsBundle } = await import("dts-bundle-generator");
  const output = { noBanner: true, exportReferencedTypes: false };
  const config = { preferredConfigPath: join(HERE, "tsconfig.json") };
  const made = generateDtsBundle(
    Object.values(ENTRIES).map((filePath) => ({ filePath, output })),
    config,
  );
  for (const [i, name] of Object.keys(ENTRIES).entries()) writeAtomically(join(outdir, `${name}.d.mts`), made[i]);
}

if (process.argv[1] === import.meta.filename) {
  await buildScript();
  // The service does not serve the declarations, so its build leaves them out.
  if (!process.argv.includes("--script")) await buildDeclarations();
}
