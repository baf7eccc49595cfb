import { join } from "node:path";
import type { Config } from "../../infra/config.ts";
import { isDiskFull } from "../../infra/errors.ts";
import { createKeyring, createSecret, hasKeyring, hasSecret, loadSecret } from "../../infra/keys/keys.ts";
import type { FoldFolder } from "../../infra/log/fold-file.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";

/** Returns the paths inside a data folder. */
export const foldersOf = (dataDir: string) => ({
  keys: join(dataDir, "keys"),
  log: join(dataDir, "log"),
  private: join(dataDir, "private"),
  public: join(dataDir, "public"),
  orders: join(dataDir, "orders"),
  lake: join(dataDir, "lake", "lake.duckdb"),
  market: join(dataDir, "market"),
  /** Folders of the demo's witnesses (which cosign the public log), and the file that names the witnesses. */
  witnesses: join(dataDir, "witnesses"),
  folds: join(dataDir, "folds"),
  wallets: join(dataDir, "wallets"),
});

/** Returns the folder in which this machine stores its folds (saved results of reading a topic) of the log. */
export const foldFolderOf = (config: Pick<Config, "data_dir">, log: Pick<Log, "id">, logger: Logger): FoldFolder => ({
  ...{ dir: foldersOf(config.data_dir).folds, logId: () => log.id, logger },
});

/** Returns the folder of the wallets that these settings name, or else the default one. */
export const walletsFolderOf = ({ wallets, data_dir }: Pick<Config, "wallets" | "data_dir">): string =>
  wallets.dir ?? foldersOf(data_dir).wallets;

/** Name of the secret from which wallets, known answers and opaque names are derived. It is stored beside the keys. */
export const OBSERVER_SECRET_NAME = "observer";
/**
 * Name of the secret from which observers and serving processes compute the content of planted pages (pages of ours
 * that test endpoints that read pages).
 */
export const PAGES_SECRET_NAME = "pages";

/**
 * Makes the keys and secrets that the data folder lacks, and keeps those that it has.
 * @returns true if the keys were made; false if they existed already
 */
export function ensureKeys(dataDir: string, validFrom: Date): boolean {
  const dir = foldersOf(dataDir).keys;
  // A data folder of an older release has keys, but not this secret.
  ensureSecret(dir, PAGES_SECRET_NAME);
  if (hasKeyring(dir)) return false;
  // The keyring is written last, so a folder with a keyring also has the observer's secret. After a crash in between,
  // the next start makes the missing keyring.
  ensureSecret(dir, OBSERVER_SECRET_NAME);
  createKeyring(dir, validFrom);
  return true;
}

function ensureSecret(dir: string, name: string): void {
  if (!hasSecret(dir, name)) {
    try {
      createSecret(dir, name);
      return;
    } catch (error) {
      // On `keys` another process was first. After other errors the line below says which file is missing.
      if (isDiskFull(error)) throw error;
    }
  }
  loadSecret(dir, name);
}
