import { existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, off, ok, warn } from "../../infra/finding.ts";
import { hasKeyring, loadKeys, loadSecret, loadSigner, readRing } from "../../infra/keys/keys.ts";
import { foldersOf, OBSERVER_SECRET_NAME } from "../../pipelines/roles/data-folder.ts";
import { MIN_FREE_BYTES } from "../../serving/status/pulse.ts";

/** The roles that may run on this machine; `start` is all of them in one process. */
const ROLES = ["start", "observe", "own", "publish", "serve"] as const;
export type Role = (typeof ROLES)[number];

const GIB = 2 ** 30;
/** Free bytes below which the finding is `broken`, since writes will soon fail. */
const DISK_BROKEN_BYTES = GIB;
/** Free bytes below which the finding is `warn`: the record of some thousand endpoints fills them within weeks. */
const DISK_WARN_BYTES = 10 * GIB;

/**
 * Returns the path if it exists, else its nearest existing parent. The check of the disk must not create the data
 * folder.
 */
const existingParent = (path: string): string => (existsSync(path) ? path : existingParent(dirname(path)));

async function readFreeBytes({ data_dir }: Pick<Config, "data_dir">): Promise<number> {
  const { bavail, bsize } = await statfs(existingParent(resolve(data_dir)));
  return bavail * bsize;
}

/** Reports whether the disk of the data folder is so full that /health of a running role is not ok. */
export const isDiskFull = async (config: Pick<Config, "data_dir">): Promise<boolean> =>
  (await readFreeBytes(config)) < MIN_FREE_BYTES;

/** Checks the free space on the disk of the data folder. */
export async function diskFindings(config: Pick<Config, "data_dir">): Promise<Finding[]> {
  const { data_dir } = config;
  const freeBytes = await readFreeBytes(config);
  const description = `${(freeBytes / GIB).toFixed(1)} GiB free for ${resolve(data_dir)}`;
  const todo =
    "free some space, or set data_dir to a larger disk: when the disk is full, ingest stops and nothing is paid";
  if (freeBytes < DISK_BROKEN_BYTES) return [broken("disk", description, todo)];
  return [freeBytes < DISK_WARN_BYTES ? warn("disk", description, todo) : ok("disk", description)];
}

/** Checks that the keys and secrets which the role needs exist, and that only their owner can read them. */
export async function keyFindings(
  { data_dir, log, sell }: Pick<Config, "data_dir" | "log" | "sell">,
  role: Role,
): Promise<Finding[]> {
  const dir = foldersOf(data_dir).keys;
  if (!hasKeyring(dir)) {
    const description = `no keys in ${dir} yet`;
    return [
      log === null
        ? off("keys", `${description}: the first start makes them`)
        : broken(
            "keys",
            description,
            "copy the keyring from the machine where keygen made it: with a shared log no role makes keys",
          ),
    ];
  }
  const ring = readRing(dir);
  if (role === "start" || role === "publish") loadKeys(dir);
  if (role === "serve")
    loadSigner(dir, ring.keys.find((key) => key.purpose === "answers" && key.retired_at === undefined)!);
  // A serving process that sells derives buyers' pseudonyms from the observer's secret.
  const sells = role === "serve" && sell.network !== null;
  if (role === "start" || role === "observe" || sells) loadSecret(dir, OBSERVER_SECRET_NAME);
  return [ok("keys", `${dir} has what ${role} needs, and nobody else can read it`)];
}
