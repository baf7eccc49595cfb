import { accessSync, constants, existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { Config } from "../../infra/config.ts";
import { readRing } from "../../infra/keys/keyring.ts";
import { hasKeys, loadKeys, loadSecret, loadSigner } from "../../infra/keys/keys.ts";
import { openLog } from "../../infra/log/open.ts";
import { openStore, type StoreName } from "../../infra/store/open.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { CHECKPOINT } from "../../pipelines/published/objects.ts";
import { LOG_TOPICS } from "../../pipelines/record/topics.ts";
import { folders, OBSERVER_SECRET } from "../../pipelines/roles/parts.ts";
import { broken, type Finding, off, ok, warn } from "./finding.ts";

/** The log answers, has our topics, and they are as they must be. Nothing is made: a missing topic is a finding. */
export async function logFindings(config: Config): Promise<Finding[]> {
  const dir = folders(config.data_dir).log;
  if (config.log === null && !existsSync(dir)) return [off("log", `none in ${dir} yet: the first start makes it`)];
  const kafka = { ...config.kafka, create: false };
  const log = await openLog({ ...config, kafka }, LOG_TOPICS, dir, createLogger("silent"));
  try {
    const ends = await Promise.all(
      Array.from({ length: log.partitions }, (_, partition) => log.bounds("observations.paid", partition)),
    );
    const records = ends.reduce((sum, { end }) => sum + end, 0);
    const where = config.log ?? dir;
    return [ok("log", `${where}: ${log.partitions} partitions, ${records} records of paid calls so far`)];
  } finally {
    await log.close();
  }
}

/** Which stores a role opens, and whether it writes there. */
const OPENS: Record<Role, Partial<Record<StoreName, "reads" | "writes">>> = {
  start: { private: "writes", public: "writes" },
  observe: { private: "writes", public: "reads" },
  own: { private: "writes", public: "writes" },
  publish: { private: "writes", public: "writes" },
  serve: { public: "reads" },
};

/**
 * The stores take what the role writes there, under conditions (a bucket is tried with an object of its own, which is
 * deleted again), and what is private is closed to whoever has no credentials.
 */
export async function storeFindings(config: Config, role: Role, name: StoreName): Promise<Finding[]> {
  const way = OPENS[role][name];
  if (way === undefined) return [off(`store.${name}`, `${role} does not open it`)];
  const address = config.stores[name];
  if (address === null) return [folderFinding(name, folders(config.data_dir)[name], way)];
  const store = await openStore(config, name, "", way === "writes");
  try {
    const head = name === "public" ? await store.head(CHECKPOINT) : null;
    const has = name === "public" ? `, ${head ? "with a checkpoint" : "nothing published yet"}` : "";
    const found = [
      ok(`store.${name}`, `${address} ${way === "writes" ? "takes conditional writes" : "is read"}${has}`),
    ];
    return name === "private" ? [...found, await closedFinding(config, address)] : found;
  } finally {
    await store.close();
  }
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
async function closedFinding(config: Config, address: string): Promise<Finding> {
  const nobody = { ...config.stores, private_key_id: null, private_key: null };
  const store = await openStore({ stores: nobody }, "private", "", false);
  try {
    await store.head("doctor/nobody");
  } catch (error) {
    const name = (error as Error).name;
    if (name === "StoreUnfit") return ok("store.private.closed", `${address} keeps out whoever has no credentials`);
    return warn("store.private.closed", `it cannot be told who is kept out: ${name}`, "ask again");
  } finally {
    await store.close();
  }
  return broken("store.private.closed", `anybody can look into ${address}`, "close the bucket: touchstone buckets");
}

/** What runs on the machine that is looked at; `start` is all of them. */
const ROLES = ["start", "observe", "own", "publish", "serve"] as const;
export type Role = (typeof ROLES)[number];

const GIB = 2 ** 30;
/** Free bytes below which writes fail soon, and below which a market of some thousand endpoints fills it within weeks. */
const DISK_BROKEN = GIB;
const DISK_WARN = 10 * GIB;

/** The nearest folder on the way up that exists: what is asked must not make one. */
const existing = (path: string): string => (existsSync(path) ? path : existing(dirname(path)));

/** Room on the disk of the data folder. */
export async function diskFindings({ data_dir }: Pick<Config, "data_dir">): Promise<Finding[]> {
  const { bavail, bsize } = await statfs(existing(resolve(data_dir)));
  const free = bavail * bsize;
  const says = `${(free / GIB).toFixed(1)} GiB free for ${resolve(data_dir)}`;
  const todo = "make room, or set data_dir to a larger disk: a full one stops ingest, and nothing is paid then";
  if (free < DISK_BROKEN) return [broken("disk", says, todo)];
  return [free < DISK_WARN ? warn("disk", says, todo) : ok("disk", says)];
}

/** What the role has to have of keys and secrets, and that nobody else can read them. */
export async function keyFindings({ data_dir, log }: Pick<Config, "data_dir" | "log">, role: Role): Promise<Finding[]> {
  const dir = folders(data_dir).keys;
  if (!hasKeys(dir)) {
    const says = `no keys in ${dir} yet`;
    return [
      log === null
        ? off("keys", `${says}: the first start makes them`)
        : broken(
            "keys",
            says,
            "where machines share a log no role draws keys: copy the ring from where keygen made it",
          ),
    ];
  }
  const ring = readRing(dir);
  if (role === "start" || role === "publish") loadKeys(dir);
  if (role === "serve")
    loadSigner(dir, ring.keys.find((key) => key.purpose === "answers" && key.retired_at === undefined)!);
  if (role === "start" || role === "observe") loadSecret(dir, OBSERVER_SECRET);
  return [ok("keys", `${dir} has what ${role} needs, and nobody else can read it`)];
}
