import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** A built script that this service serves as one file, such as the client library of the npm package. */
export interface ClientFile {
  readonly text: string;
  /** Hex sha256, as `sha256sum` prints it. */
  readonly sha256: string;
  /** Hash in the form of HTML's `integrity` attribute (W3C Subresource Integrity). */
  readonly integrity: string;
}

/** Path at which `npm run build` writes the client library. */
const CLIENT_PATH = fileURLToPath(new URL("./client/dist/client.mjs", import.meta.url));
/** Path at which `npm run build` writes the script that verifies a card in a page. */
const PROOF_PATH = fileURLToPath(new URL("./client/dist/prove.mjs", import.meta.url));

/**
 * Reads the built script that verifies a card in a page; null when nothing was built.
 * @throws Error when its text would end the script element of a page that includes it
 */
export function readProveFile(): ClientFile | null {
  const file = readClientFile(PROOF_PATH);
  if (file && /<\/script|<!--/i.test(file.text)) throw new Error("prove.mjs cannot stand in a page");
  return file;
}

/** Reads a built file; null when the service runs from its sources and nothing was built. */
export function readClientFile(file: string = CLIENT_PATH): ClientFile | null {
  if (!existsSync(file)) return null;
  const bytes = readFileSync(file);
  const digest = createHash("sha256").update(bytes).digest();
  return {
    text: bytes.toString("utf8"),
    sha256: digest.toString("hex"),
    integrity: `sha256-${digest.toString("base64")}`,
  };
}

const NOT_BUILT = "(this service holds no built file)";

/** Fills the hashes of the served files into a page of the documentation. */
export const withHashes = (markdown: string, file: ClientFile | null, proof: ClientFile | null): string =>
  markdown
    .replaceAll("PROVE_SHA256", proof?.sha256 ?? NOT_BUILT)
    .replaceAll("CLIENT_SHA256", file?.sha256 ?? NOT_BUILT)
    .replaceAll("CLIENT_INTEGRITY", file?.integrity ?? NOT_BUILT);
