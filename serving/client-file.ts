import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The client library as one file, the same that its package holds. */
export interface ClientFile {
  readonly text: string;
  /** Hex, as `sha256sum` prints it. */
  readonly sha256: string;
  /** As a page of HTML names it (W3C Subresource Integrity). */
  readonly integrity: string;
}

/** Where `npm run build` puts it. */
const BUILT = fileURLToPath(new URL("./client/dist/client.mjs", import.meta.url));

/** Null where the service was started from its sources and nothing was built. */
export function readClientFile(file: string = BUILT): ClientFile | null {
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

/** A page of the documentation with the hashes of the file that is served here, where it names them. */
export const withHashes = (markdown: string, file: ClientFile | null): string =>
  markdown
    .replaceAll("CLIENT_SHA256", file?.sha256 ?? NOT_BUILT)
    .replaceAll("CLIENT_INTEGRITY", file?.integrity ?? NOT_BUILT);
