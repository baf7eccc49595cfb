// npm run build: bundles the library into one file of plain JavaScript (dist/client.mjs), which is in the package and
// which the service serves, and its declarations into another (dist/client.d.mts). Both depend only on the sources and
// the lock file.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { build } from "esbuild";

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, "../..");
/** The library, and its proofs under a witness policy, which are a second file so that the first stays small. */
const ENTRIES = { client: join(HERE, "index.ts"), proof: join(HERE, "proof.ts") };
const { name, version, license } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));

/**
 * Returns the licence comment. @noble/ed25519 requires its licence in every copy; canonicalize is Apache-2.0, as this
 * package.
 */
function licences() {
  const curve = dirname(createRequire(import.meta.url).resolve("@noble/ed25519"));
  const theirs = readFileSync(join(curve, "LICENSE"), "utf8").trim();
  const own = `${name} ${version}, ${license} (https://www.apache.org/licenses/LICENSE-2.0). It holds canonicalize, under`;
  return `/*!\n${own} the same licence, and @noble/ed25519, under this one:\n\n${theirs}\n*/`;
}

/** Writes a file by renaming, so that a server or another build that reads it never sees a part of it. */
function writeAtomically(file, text) {
  if (existsSync(file) && readFileSync(file, "utf8") === text) return;
  mkdirSync(dirname(file), { recursive: true });
  const whole = `${file}.${process.pid}.new`;
  writeFileSync(whole, text);
  renameSync(whole, file);
}

/**
 * Writes dist/client.mjs and dist/proof.mjs, in a fifth of a second. @throws esbuild's error for a source or an import
 */
export async function buildScript(outdir = join(HERE, "dist")) {
  for (const [name, entry] of Object.entries(ENTRIES)) await buildEntry(name, entry, outdir);
}

async function buildEntry(name, entry, outdir) {
  const { outputFiles } = await build({
    ...{ absWorkingDir: ROOT, entryPoints: [entry], bundle: true, write: false, format: "esm" },
    // With platform `neutral` an import of a Node module is an error.
    ...{ platform: "neutral", mainFields: ["module", "main"], target: "es2022", logLevel: "warning" },
    ...{ charset: "utf8", legalComments: "none", banner: { js: licences() } },
  });
  // The paths in esbuild's comments differ between machines, so these comments are removed.
  writeAtomically(join(outdir, `${name}.mjs`), outputFiles[0].text.replace(/^\/\/ \S+\.[jt]s\n/gm, ""));
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
