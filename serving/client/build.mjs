// npm run build: the library as one file of plain JavaScript (dist/client.mjs), which the package holds and the service
// serves, and its declarations (dist/client.d.mts), which name no other file. Both follow from sources and lock alone.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { build } from "esbuild";

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, "../..");
/** The library, and its proofs under a witness policy, which are a file of their own so that it stays small. */
const ENTRIES = { client: join(HERE, "index.ts"), proof: join(HERE, "proof.ts") };
/** The proof of a card for a page (dist/prove.mjs), which the service serves and the package does not hold. */
const PAGE = { prove: join(ROOT, "serving/prove/page.mjs") };
const { name, version, license } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));

/** The text of the licence in the folder of an installed package. @param folder of it, from that of its main file */
const licenceOf = (name, folder = ".") =>
  readFileSync(join(dirname(createRequire(import.meta.url).resolve(name)), folder, "LICENSE"), "utf8").trim();

/** The licence of @noble/ed25519 asks for its text in every copy; that of canonicalize is the package's own. */
function licences(isPage) {
  const theirs = licenceOf("@noble/ed25519");
  const unpacks = isPage ? `\n\nand fzstd, under this one:\n\n${licenceOf("fzstd", "..")}` : "";
  const own = `${name} ${version}, ${license} (https://www.apache.org/licenses/LICENSE-2.0). It holds canonicalize, under`;
  return `/*!\n${own} the same licence, and @noble/ed25519, under this one:\n\n${theirs}${unpacks}\n*/`;
}

/** The grading parameters, which have no file in a browser: their text takes the place of the module that reads them. */
const inlinedParams = {
  name: "params",
  setup({ onLoad, onResolve }) {
    // Functions that hash on Node are not among what a page calls; their modules stay out with them.
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
  for (const [name, entry] of Object.entries({ ...ENTRIES, ...PAGE })) await buildEntry(name, entry, outdir);
}

async function buildEntry(name, entry, outdir) {
  const isPage = name in PAGE;
  const { outputFiles } = await build({
    ...{ absWorkingDir: ROOT, entryPoints: [entry], bundle: true, write: false, format: "esm" },
    // Neutral: a module of Node, or of a browser, is an error here.
    ...{ platform: "neutral", mainFields: ["module", "main"], target: "es2022", logLevel: "warning" },
    ...{ charset: "utf8", legalComments: "none", banner: { js: licences(isPage) } },
    ...(isPage ? { plugins: [inlinedParams] } : {}),
  });
  if (/\bnode:|\bBuffer\b/.test(outputFiles[0].text)) throw new Error(`${name}.mjs asks for a module of Node`);
  // Places of sources, which differ with where packages lie.
  put(join(outdir, `${name}.mjs`), outputFiles[0].text.replace(/^\/\/ \S+\.m?[jt]s\n/gm, ""));
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
