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
  /** The demo's witnesses, a folder each, and the policy that names them. */
  witnesses: join(dataDir, "witnesses"),
  folds: join(dataDir, "folds"),
  wallets: join(dataDir, "wallets"),
});

/** Where this machine keeps its folds of a log. */
export const foldFolderOf = (config: Pick<Config, "data_dir">, log: Pick<Log, "id">, logger: Logger): FoldFolder => ({
  ...{ dir: dataFolders(config.data_dir).folds, logId: () => log.id, logger },
});

/** Folder in which the wallets of these settings lie. */
export const walletsFolderOf = ({ wallets, data_dir }: Pick<Config, "wallets" | "data_dir">): string =>
  wallets.dir ?? dataFolders(data_dir).wallets;

/** Name of the observer's secret, which is kept beside the keys. */
export const OBSERVER_SECRET = "observer";
/** Name of the secret from which the content of planted pages is computed, by observers and by serving replicas. */
export const PAGES_SECRET = "pages";

/** Make keys and secrets in the data folder when there are none. @returns false when the keys were there already */
export function makeKeys(dataDir: string, validFrom: Date): boolean {
  const dir = dataFolders(dataDir).keys;
  // An older data folder lacks the secret of planted pages.
  makeSecret(dir, PAGES_SECRET);
  if (hasKeyring(dir)) return false;
  // The ring comes last: a folder with a ring has its secret, so a crash in between is mended by the next start.
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
