import { accessSync, constants, existsSync } from "node:fs";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, off, ok, warn } from "../../infra/finding.ts";
import { type KnownLog, type Log, LogNotBegun, refuseNewLog } from "../../infra/log/log.ts";
import { logFileIn } from "../../infra/log/log-file.ts";
import { openLog } from "../../infra/log/open.ts";
import { openStore, type StoreName } from "../../infra/store/open.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { CHECKPOINT } from "../../pipelines/published/objects.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { examineRecord } from "../../pipelines/roles/record-identity.ts";
import { withOpen } from "../files.ts";
import type { Role } from "./machine.ts";

/** Opens the log without creating topics. */
const openExistingLog = (config: Config, known?: KnownLog): Promise<Log> => {
  const kafka = { ...config.kafka, create: false };
  return openLog(
    { ...config, kafka },
    LOG_TOPIC_OPTIONS,
    foldersOf(config.data_dir).log,
    createLogger("silent"),
    known,
  );
};

/**
 * Throws every error except LogNotBegun, which is no fault: the cluster has the topics of the log, and the first role
 * that starts will begin the log.
 */
const ignoreLogNotBegun = (error: unknown) => {
  if (!(error instanceof LogNotBegun)) throw error;
};

/**
 * Checks that the log, the stores and the keys belong to one record. If one is missing or belongs to another record,
 * the finding names it, and what to do.
 */
export async function recordFindings(config: Config, role: Role): Promise<Finding[]> {
  if (role === "serve") return [off("record", "serve has no private store to compare the log with")];
  const examination = await examineRecord(config);
  if (examination === null) return [off("record", "none here yet: the first start makes it")];
  const { known: knownLog, description: says, checkLog } = examination;
  const dir = foldersOf(config.data_dir).log;
  if (config.log === null && !existsSync(logFileIn(dir))) refuseNewLog(dir, knownLog);
  else await withOpen(openExistingLog(config, knownLog), checkLog).catch(ignoreLogNotBegun);
  return [ok("record", says)];
}

/**
 * Checks that the log answers and has all topics with the right settings. A missing topic is a finding; the check
 * creates none.
 */
export async function logFindings(config: Config): Promise<Finding[]> {
  const dir = foldersOf(config.data_dir).log;
  if (config.log === null && !existsSync(logFileIn(dir)))
    return [off("log", `none in ${dir} yet: the first start makes it`)];
  return withOpen(openExistingLog(config), async (log) => {
    const partitionBounds = await Promise.all(
      Array.from({ length: log.partitions }, (_, partition) => log.bounds("observations.paid", partition)),
    );
    const records = partitionBounds.reduce((sum, { end }) => sum + end, 0);
    const where = config.log ?? dir;
    return [ok("log", `${where}: ${log.partitions} partitions, ${records} records of paid calls so far`)];
  }).catch((error: unknown) => {
    ignoreLogNotBegun(error);
    return [ok("log", `${config.log}: it has its topics, and the first role of the pipeline will begin it`)];
  });
}

/**
 * The stores that each role opens, and whether it writes to them. The orders store is opened only if calls are sold.
 */
const STORE_ACCESS: Record<Role, Partial<Record<StoreName, "reads" | "writes">>> = {
  start: { private: "writes", public: "writes", orders: "writes" },
  observe: { private: "writes", public: "reads" },
  own: { private: "writes", public: "writes" },
  publish: { private: "writes", public: "writes" },
  serve: { public: "reads", orders: "writes" },
};

/**
 * Checks that the role can use a store. If the role writes to it, the check writes one object conditionally and
 * deletes it again. Also checks that a private store refuses requests without credentials.
 */
export async function storeFindings(config: Config, role: Role, name: StoreName): Promise<Finding[]> {
  const sells = config.sell.network !== null;
  const access = name === "orders" && !sells ? undefined : STORE_ACCESS[role][name];
  if (access === undefined) return [off(`store.${name}`, `${role} does not open it`)];
  const address = config.stores[name];
  if (address === null) return [folderFinding(name, foldersOf(config.data_dir)[name], access)];
  return withOpen(openStore(config, name, "", access === "writes"), async (store) => {
    const head = name === "public" ? await store.head(CHECKPOINT) : null;
    const contentText = name === "public" ? `, ${head ? "with a checkpoint" : "nothing published yet"}` : "";
    const findings = [
      ok(`store.${name}`, `${address} ${access === "writes" ? "takes conditional writes" : "is read"}${contentText}`),
    ];
    return name === "public" ? findings : [...findings, await closedFinding(config, name, address)];
  });
}

function folderFinding(name: StoreName, dir: string, access: "reads" | "writes"): Finding {
  if (!existsSync(dir)) return off(`store.${name}`, `no folder ${dir} yet: the first start makes it`);
  try {
    accessSync(dir, access === "writes" ? constants.R_OK | constants.W_OK : constants.R_OK);
  } catch {
    return broken(
      `store.${name}`,
      `${dir} cannot be ${access === "writes" ? "written" : "read"} by this user`,
      `change its owner with chown`,
    );
  }
  return ok(`store.${name}`, `${dir} can be ${access === "writes" ? "written" : "read"}`);
}

/** Checks that a bucket is closed to the public, by a request without credentials for an object that does not exist. */
async function closedFinding(config: Config, name: "private" | "orders", address: string): Promise<Finding> {
  const storesWithoutCredentials = { ...config.stores, [`${name}_key_id`]: null, [`${name}_key`]: null };
  const store = await openStore({ stores: storesWithoutCredentials }, name, "", false);
  try {
    await store.head("doctor/nobody");
  } catch (error) {
    const { name: errorName } = error as Error;
    if (errorName === "StoreUnfit")
      return ok(`store.${name}.closed`, `${address} refuses requests without credentials`);
    return warn(
      `store.${name}.closed`,
      `a request without credentials failed, so it is not known whether it would be refused: ${errorName}`,
      "try again",
    );
  } finally {
    await store.close();
  }
  return broken(
    `store.${name}.closed`,
    `${address} answers requests without credentials`,
    "close the bucket: touchstone buckets",
  );
}
