import { join } from "node:path";
import type { Clock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { createEgress } from "../infra/egress/create.ts";
import type { Egress } from "../infra/egress/egress.ts";
import { hasKeys, type Keys, keygen, loadKeys } from "../infra/keys/keys.ts";
import { createSecret, loadSecret } from "../infra/keys/secret.ts";
import { openEmbeddedLog } from "../infra/log/embedded.ts";
import type { Log } from "../infra/log/log.ts";
import { openDirectoryStore } from "../infra/store/directory.ts";
import type { Store } from "../infra/store/store.ts";
import { createLogger, createMetrics, type Logger, type Metrics } from "../infra/telemetry.ts";

/** What every role may need of this machine, opened from the settings. */
export interface Parts {
  config: Config;
  clock: Clock;
  log: Log;
  privateStore: Store;
  publicStore: Store;
  keys: Keys;
  /** Known answers, wallets and opaque names hang on this. */
  secret: Buffer;
  egress: Egress;
  logger: Logger;
  metrics: Metrics;
  close(): Promise<void>;
}

/** Folders of a data folder, in one place. */
export const folders = (dataDir: string) => ({
  keys: join(dataDir, "keys"),
  log: join(dataDir, "log"),
  private: join(dataDir, "private"),
  public: join(dataDir, "public"),
  lake: join(dataDir, "lake", "lake.duckdb"),
  market: join(dataDir, "market"),
});

/** The one secret of the observer, beside the keys. */
export const OBSERVER_SECRET = "observer";

/** Make keys and secret in the data folder when there are none. @returns false when they were there already */
export function makeKeys(dataDir: string, validFrom: Date): boolean {
  const dir = folders(dataDir).keys;
  if (hasKeys(dir)) return false;
  // The ring comes last: a folder with a ring has its secret, so a crash in between is mended by the next start.
  try {
    createSecret(dir, OBSERVER_SECRET);
  } catch (error) {
    loadSecret(dir, OBSERVER_SECRET);
    if ((error as Error).name !== "KeyFileError") throw error;
  }
  keygen(dir, validFrom);
  return true;
}

/**
 * Open what the roles share. On any error what was opened is closed again.
 * @throws KeyFileError, LogRefused, LogBusy and what the adapters name.
 */
export async function openParts(config: Config, clock: Clock): Promise<Parts> {
  const at = folders(config.data_dir);
  const keys = loadKeys(at.keys);
  const secret = loadSecret(at.keys, OBSERVER_SECRET);
  const logger = createLogger(config.log_level);
  const opened: { close(): Promise<void> }[] = [];
  const keep = <T extends { close(): Promise<void> }>(part: T): T => {
    opened.unshift(part);
    return part;
  };
  const close = async () => {
    for (const part of opened.splice(0)) await part.close();
  };
  try {
    const log = keep(await openEmbeddedLog(at.log, { partitions: config.log_partitions }));
    const privateStore = keep(await openDirectoryStore(at.private));
    const publicStore = keep(await openDirectoryStore(at.public));
    const egress = keep(
      createEgress({ allowLoopback: config.allow_loopback, userAgent: `touchstone (+${config.base_url})` }),
    );
    return {
      config,
      clock,
      log,
      privateStore,
      publicStore,
      keys,
      secret,
      egress,
      logger,
      metrics: createMetrics(),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
