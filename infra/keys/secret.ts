import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { createPrivate, KeyFileError, privateFolder, readPrivate, refuseSharedFolder } from "./files.ts";

/** Length of every secret: the block that HMAC-SHA256 calls full strength. */
export const SECRET_BYTES = 32;

function pathOf(dir: string, name: string): string {
  if (!/^[a-z][a-z0-9-]{0,62}$/.test(name)) throw new KeyFileError(`'${name}' is no name for a secret`);
  return join(dir, `${name}.secret`);
}

/**
 * Make the secret `name` (for HMAC: salts, opaque payer names): 32 random bytes in `<dir>/<name>.secret`, mode 0600.
 * @throws KeyFileError when it exists: every salt and opaque name ever published hangs on its bytes.
 */
export function createSecret(dir: string, name: string): void {
  privateFolder(dir);
  createPrivate(pathOf(dir, name), randomBytes(SECRET_BYTES));
}

/**
 * Read the secret `name`. It is never made here: a lost volume must be noticed, not papered over with new bytes.
 * @throws KeyFileError when it is missing, open to others or not 32 bytes.
 */
export function loadSecret(dir: string, name: string): Buffer {
  refuseSharedFolder(dir);
  const path = pathOf(dir, name);
  const secret = readPrivate(path);
  if (secret.length !== SECRET_BYTES) {
    throw new KeyFileError(`${path} holds ${secret.length} bytes instead of ${SECRET_BYTES}`);
  }
  return secret;
}
