import { accessSync, constants, existsSync } from "node:fs";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, off, ok, warn } from "../../infra/finding.ts";
import { type KnownLog, type Log, LogNotBegun, refuseNewLog } from "../../infra/log/log.ts";
import { logFileIn } from "../../infra/log/log-file.ts";
import { openLog } from "../../infra/log/open.ts";
import { openStore, type StoreName } from "../../infra/store/open.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { CHECKPOINT } from "../../pipelines/published/objects.ts";
import { LOG_TOPICS } from "../../pipelines/record/topics.ts";
import { folders } from "../../pipelines/roles/data-folder.ts";
import { examineRecord } from "../../pipelines/roles/record-identity.ts";
import { withOpen } from "../files.ts";
import type { Role } from "./machine.ts";

/** The log as it is: no topic of a cluster is made. */
const openSilently = (config: Config, known?: KnownLog): Promise<Log> => {
  const kafka = { ...config.kafka, create: false };
  return openLog({ ...config, kafka }, LOG_TOPICS, folders(config.data_dir).log, createLogger("silent"), known);
};

/** That nobody has begun the log is no fault: the first role that starts does. */
const unlessNotBegun = (error: unknown) => {
  if (!(error instanceof LogNotBegun)) throw error;
};

/** Do log, stores and keys belong together? Where one is lost or another's the words say which, and what to do. */
export async function recordFindings(config: Config, role: Role): Promise<Finding[]> {
  if (role === "serve") return [off("record", "serve has no private store to hold the log against")];
  const found = await examineRecord(config);
  if (found === null) return [off("record", "none here yet: the first start makes it")];
  const { known, says, holdAgainst } = found;
  const dir = folders(config.data_dir).log;
  if (config.log === null && !existsSync(logFileIn(dir))) refuseNewLog(dir, known);
  else await withOpen(openSilently(config, known), holdAgainst).catch(unlessNotBegun);
  return [ok("record", says)];
}

/** The log answers, has our topics, and they are as they must be. Nothing is made: a missing topic is a finding. */
export async function logFindings(config: Config): Promise<Finding[]> {
  const dir = folders(config.data_dir).log;
  if (config.log === null && !existsSync(logFileIn(dir)))
    return [off("log", `none in ${dir} yet: the first start makes it`)];
  return withOpen(openSilently(config), async (log) => {
    const ends = await Promise.all(
      Array.from({ length: log.partitions }, (_, partition) => log.bounds("observations.paid", partition)),
    );
    const records = ends.reduce((sum, { end }) => sum + end, 0);
    const where = config.log ?? dir;
    return [ok("log", `${where}: ${log.partitions} partitions, ${records} records of paid calls so far`)];
  }).catch((error: unknown) => {
    unlessNotBegun(error);
    return [ok("log", `${config.log}: its topics are there, and the first role of the pipeline that starts begins it`)];
  });
}

/** Which stores a role opens, and whether it writes there; that of the orders only where it sells. */
const OPENS: Record<Role, Partial<Record<StoreName, "reads" | "writes">>> = {
  start: { private: "writes", public: "writes", orders: "writes" },
  observe: { private: "writes", public: "reads" },
  own: { private: "writes", public: "writes" },
  publish: { private: "writes", public: "writes" },
  serve: { public: "reads", orders: "writes" },
};

/**
 * The stores take what the role writes there, under conditions (a bucket is tried with an object of its own, which is
 * deleted again), and what is private is closed to whoever has no credentials.
 */
export async function storeFindings(config: Config, role: Role, name: StoreName): Promise<Finding[]> {
  const sells = config.sell.network !== null;
  const way = name === "orders" && !sells ? undefined : OPENS[role][name];
  if (way === undefined) return [off(`store.${name}`, `${role} does not open it`)];
  const address = config.stores[name];
  if (address === null) return [folderFinding(name, folders(config.data_dir)[name], way)];
  return withOpen(openStore(config, name, "", way === "writes"), async (store) => {
    const head = name === "public" ? await store.head(CHECKPOINT) : null;
    const has = name === "public" ? `, ${head ? "with a checkpoint" : "nothing published yet"}` : "";
    const found = [
      ok(`store.${name}`, `${address} ${way === "writes" ? "takes conditional writes" : "is read"}${has}`),
    ];
    return name === "public" ? found : [...found, await closedFinding(config, name, address)];
  });
}

function folderFinding(name: StoreName, dir: string, way: "reads" | "writes"): Finding {
  if (!existsSync(dir)) return off(`store.${name}`, `no folder ${dir} yet: the first start makes it`);
  try {
    accessSync(dir, way === "writes" ? constants.R_OK | constants.W_OK : constants.R_OK);
  } catch {
    return broken(
      `store.${name}`,
      `${dir} cannot be ${way === "writes" ? "written" : "read"} by this user`,
      `chown it`,
    );
  }
  return ok(`store.${name}`, `${dir} can be ${way === "writes" ? "written" : "read"}`);
}

/** Can anybody read what is private? Asked without credentials for an object that does not exist. */
async function closedFinding(config: Config, name: "private" | "orders", address: string): Promise<Finding> {
  const nobody = { ...config.stores, [`${name}_key_id`]: null, [`${name}_key`]: null };
  const store = await openStore({ stores: nobody }, name, "", false);
  try {
    await store.head("doctor/nobody");
  } catch (error) {
    const { name: fault } = error as Error;
    if (fault === "StoreUnfit") return ok(`store.${name}.closed`, `${address} keeps out everybody without credentials`);
    return warn(`store.${name}.closed`, `it cannot be told who is kept out: ${fault}`, "ask again");
  } finally {
    await store.close();
  }
  return broken(`store.${name}.closed`, `anybody can look into ${address}`, "close the bucket: touchstone buckets");
}
