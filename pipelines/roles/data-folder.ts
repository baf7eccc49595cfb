import { join } from "node:path";
import type { Config } from "../../infra/config.ts";
import { Failure } from "../../infra/errors.ts";
import { createKeyring, createSecret, hasKeyring, loadSecret } from "../../infra/keys/keys.ts";
import type { FoldFolder } from "../../infra/log/fold-file.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";

/** Folders of a data folder, in one place. */
export const dataFolders = (dataDir: string) => ({
  keys: join(dataDir, "keys"),
  log: join(dataDir, "log"),
  private: join(dataDir, "private"),
  public: join(dataDir, "public"),
  orders: join(dataDir, "orders"),
  lake: join(dataDir, "lake", "lake.duckdb"),
  market: join(dataDir, "market"),
  /** Folders of the demo's witnesses, and the policy that names them. */
  witnesses: join(dataDir, "witnesses"),
  folds: join(dataDir, "folds"),
  wallets: join(dataDir, "wallets"),
});

/** Folder in which this machine stores its folds of a log. */
export const foldFolderOf = (config: Pick<Config, "data_dir">, log: Pick<Log, "id">, logger: Logger): FoldFolder => ({
  ...{ dir: dataFolders(config.data_dir).folds, logId: () => log.id, logger },
});

/** Folder of the wallets in these settings. */
export const walletsFolderOf = ({ wallets, data_dir }: Pick<Config, "wallets" | "data_dir">): string =>
  wallets.dir ?? dataFolders(data_dir).wallets;

/** Name of the observer's secret, which is kept beside the keys. */
export const OBSERVER_SECRET = "observer";
/** Name of the secret from which the content of planted pages is computed, by observers and by serving replicas. */
export const PAGES_SECRET = "pages";

/** Makes keys and secrets in the data folder unless they exist. @returns false when the keys existed already */
export function makeKeys(dataDir: string, validFrom: Date): boolean {
  const dir = dataFolders(dataDir).keys;
  // An older data folder lacks the secret of planted pages.
  makeSecret(dir, PAGES_SECRET);
  if (hasKeyring(dir)) return false;
  // The keyring is written last: a folder with a keyring has its secrets, so the next start repairs a crash in between.
  makeSecret(dir, OBSERVER_SECRET);
  createKeyring(dir, validFrom);
  return true;
}

function makeSecret(dir: string, name: string): void {
  try {
    createSecret(dir, name);
  } catch (error) {
    loadSecret(dir, name);
    if (!(error instanceof Failure && error.code === "keys")) throw error;
  }
}
