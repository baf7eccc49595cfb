// npm run build: the library as one file of plain JavaScript (dist/client.mjs), which the package holds and the service
// serves, and its declarations (dist/client.d.mts), which name no other file. Both follow from sources and lock alone.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { build } from "esbuild";

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, "../..");
/** The library, and its proofs under a witness policy, which are a file of their own so that it stays small. */
const ENTRIES = { client: join(HERE, "index.ts"), proof: join(HERE, "proof.ts") };
const { name, version, license } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));

/** The licence of @noble/ed25519 asks for its text in every copy; that of canonicalize is the package's own. */
function licences() {
  const curve = dirname(createRequire(import.meta.url).resolve("@noble/ed25519"));
  const theirs = readFileSync(join(curve, "LICENSE"), "utf8").trim();
  const own = `${name} ${version}, ${license} (https://www.apache.org/licenses/LICENSE-2.0). It holds canonicalize, under`;
  return `/*!\n${own} the same licence, and @noble/ed25519, under this one:\n\n${theirs}\n*/`;
}

/** Whole or not at all: a server, or another run of this, may be reading. */
function put(file, text) {
  if (existsSync(file) && readFileSync(file, "utf8") === text) return;
  mkdirSync(dirname(file), { recursive: true });
  const whole = `${file}.${process.pid}.new`;
  writeFileSync(whole, text);
  renameSync(whole, file);
}

/** Writes dist/client.mjs and dist/proof.mjs, in a fifth of a second. @throws what esbuild says of a source, or of a module of Node */
export async function buildScript(outdir = join(HERE, "dist")) {
  for (const [name, entry] of Object.entries(ENTRIES)) await buildEntry(name, entry, outdir);
}

async function buildEntry(name, entry, outdir) {
  const { outputFiles } = await build({
    ...{ absWorkingDir: ROOT, entryPoints: [entry], bundle: true, write: false, format: "esm" },
    // Neutral: a module of Node, or of a browser, is an error here.
    ...{ platform: "neutral", mainFields: ["module", "main"], target: "es2022", logLevel: "warning" },
    ...{ charset: "utf8", legalComments: "none", banner: { js: licences() } },
  });
  // Places of sources, which differ with where packages lie.
  put(join(outdir, `${name}.mjs`), outputFiles[0].text.replace(/^\/\/ \S+\.[jt]s\n/gm, ""));
}

/** Writes dist/client.d.mts and dist/proof.d.mts, in some seconds. @throws Error with what the compiler says of a source */
export async function buildDeclarations(outdir = join(HERE, "dist")) {
  const { generateDtsBundle } = await import("dts-bundle-generator");
  const output = { noBanner: true, exportReferencedTypes: false };
  const config = { preferredConfigPath: join(HERE, "tsconfig.json") };
  const made = generateDtsBundle(
    Object.values(ENTRIES).map((filePath) => ({ filePath, output })),
    config,
  );
  for (const [i, name] of Object.keys(ENTRIES).entries()) put(join(outdir, `${name}.d.mts`), made[i]);
}

if (process.argv[1] === import.meta.filename) {
  await buildScript();
  // The service serves no declarations, and its own build shall not wait for them.
  if (!process.argv.includes("--script")) await buildDeclarations();
}
