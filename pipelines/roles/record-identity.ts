import { existsSync } from "node:fs";
import { z } from "zod";
import { COMMIT_CHAIN_PREFIX } from "../../infra/chain/commit.ts";
import type { Config } from "../../infra/config.ts";
import { Failure } from "../../infra/errors.ts";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { hasKeyring, type Keyring, readRing } from "../../infra/keys/keys.ts";
import type { KnownLog, Log } from "../../infra/log/log.ts";
import { logFileIn } from "../../infra/log/log-file.ts";
import { openStore, type StoreName } from "../../infra/store/open.ts";
import type { Store } from "../../infra/store/store.ts";
import { type Checkpoint, originOf } from "../../infra/tree/checkpoint.ts";
import { type Generation, highestGeneration, readGeneration } from "../4-publish/generation.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { readCheckpoint } from "../published/reader.ts";
import { ensureKeys, foldersOf } from "./data-folder.ts";

/**
 * Makes the error for log, stores and keys that do not belong together, or of which one is lost. Starting with them
 * would lose a part of the published record, or mix two records. Nothing was changed.
 */
const recordFailure = (why: string): Failure =>
  new Failure("record", `${why}; nothing was changed (docs/operate, backup and restore)`);

/**
 * Key of an object in the private store and in the store of orders, here called the store's mark. It holds the id of
 * the log to which the store belongs, and the version of the store's format.
 */
const MARK_KEY = "record.json";
/** Version of the format of the private store and of the store of orders. Some objects in them also have a version. */
export const STORE_FORM = 1;

const Mark = z.looseObject({ v: z.int().min(1), log: z.string(), partitions: z.int() });
type Mark = z.infer<typeof Mark>;

/**
 * Reads the mark of a store; null if it has none.
 * @throws Failure `record` for a mark of a newer release, or a mark that cannot be parsed
 */
async function readMark(store: Pick<Store, "get">, name: StoreName): Promise<Mark | null> {
  const object = await store.get(MARK_KEY);
  if (!object) return null;
  let mark: Mark;
  try {
    mark = Mark.parse(JSON.parse(Buffer.from(object.bytes).toString("utf8")));
  } catch (error) {
    throw recordFailure(`${MARK_KEY} of the ${name} store does not read (${(error as Error).message.slice(0, 120)})`);
  }
  if (mark.v <= STORE_FORM) return mark;
  throw recordFailure(
    `a newer release wrote the ${name} store (form ${mark.v}, this one has ${STORE_FORM}): go on with that release`,
  );
}

/**
 * Writes the mark of the log into a store that has none.
 * @throws Failure `record` if the store has the mark of another log
 */
async function writeMark(store: Store, name: StoreName, log: Pick<Log, "id" | "partitions">): Promise<void> {
  const mark: Mark = { v: STORE_FORM, log: log.id, partitions: log.partitions };
  const { result } = await store.create(MARK_KEY, Buffer.from(JSON.stringify(mark)));
  if (result === "exists") refuseOtherLog(await readMark(store, name), name, log);
}

function refuseOtherLog(mark: Mark | null, name: StoreName, { id }: Pick<Log, "id">): void {
  if (mark === null || mark.log === id) return;
  throw recordFailure(
    `the ${name} store is of log ${mark.log}, and the log here is ${id}: put back the one that belongs to the other`,
  );
}

/**
 * The log to which a private store belongs, and the store's newest generation (the object that describes one
 * publication: the size and root of the public log before and after it). `log` is null if the store has nothing of
 * any log yet.
 */
interface PrivateIdentity {
  log: string | null;
  isMarked: boolean;
  generation: Generation | null;
}

/**
 * Reads the identity of a private store from its mark. An older store without a mark is identified by its newest
 * generation, or by its commit chains (lists of the log's segments), whose keys contain the log's id.
 */
async function readPrivateIdentity(store: Pick<Store, "get" | "head" | "list">): Promise<PrivateIdentity> {
  const mark = await readMark(store, "private");
  const n = await highestGeneration(store, -1);
  const generation = n < 0 ? null : await readGeneration(store, n);
  if (mark) return { log: mark.log, isMarked: true, generation };
  const [chain] = generation?.log ? [] : await store.list(COMMIT_CHAIN_PREFIX, { limit: 1 });
  return {
    log: generation?.log ?? chain?.key.slice(COMMIT_CHAIN_PREFIX.length).split("/")[0] ?? null,
    isMarked: false,
    generation,
  };
}

/**
 * Returns all keys of the ring that sign or have signed checkpoints (heads of the public log), so that a checkpoint
 * from before a key rotation is recognized too.
 */
const allLogKeys = (ring: Keyring, origin: string) => {
  const [log, ...logs] = ring.keys
    .filter(({ purpose }) => purpose === "log")
    .map(({ x }) => ({ name: origin, publicKey: fromBase64url(x)! }));
  return { log: log!, logs };
};

/**
 * Reads the public checkpoint; null if there is none.
 * @throws Failure `record` when it has another origin or is not signed by our keys
 */
async function readPublicHead(store: Pick<Store, "get">, ring: Keyring, origin: string): Promise<Checkpoint | null> {
  try {
    return await readCheckpoint(store, allLogKeys(ring, origin));
  } catch (error) {
    if ((error as Error).name !== "BadNote") throw error;
    throw recordFailure(
      `the public store holds a record that is not this one (${(error as Error).message}): put back the keys that signed ` +
        "it, or that store, or set base_url as it was",
    );
  }
}

/**
 * Number of times that both stores are read before a mismatch is reported, since a publication between two reads
 * looks like a mismatch.
 */
const MAX_COMPARISONS = 4;

/** Returns why private and public store do not belong together; null if they do. */
function mismatchOf({ log, generation }: PrivateIdentity, head: Checkpoint | null): string | null {
  const size = head?.size ?? 0;
  if (generation === null) {
    if (head === null) return null;
    return log === null
      ? `the private store is empty, and the public one holds a record of ${size} leaves: put the private store back from its backup`
      : `the private store knows of no publication, and the public one holds ${size} leaves: put back a newer copy of the private store`;
  }
  const { old, new: afterPublication } = generation;
  if (head === null)
    return old.size === 0
      ? null
      : `the public store is empty, and ${old.size} leaves were published: put it back from a mirror (touchstone mirror) or its backup`;
  const root = head.root.toString("hex");
  if ([old, afterPublication].some((tree) => tree.size === size && tree.root === root)) return null;
  if (size > afterPublication.size)
    return `the private store is older (${afterPublication.size} leaves) than the public one (${size}): put back a newer copy of the private store`;
  if (size < old.size)
    return `the public store is older (${size} leaves) than the private one (${old.size}): put it back from a mirror (touchstone mirror) or a newer backup`;
  return `private and public store are of two records: the roots of ${size} leaves differ: put back the one that belongs to the other`;
}

/** The two stores of a published record, with the keys and the origin (name of the public log) that are expected. */
export interface RecordParts {
  privateStore: Pick<Store, "get" | "head" | "list">;
  publicStore: Pick<Store, "get">;
  ring: Keyring;
  origin: string;
}

/**
 * Checks that these stores and keys belong together, and returns the identity of their log. Reads some objects and
 * writes nothing.
 * @throws Failure `record`, BadPrivateObject
 */
export async function checkRecord({ privateStore, publicStore, ring, origin }: RecordParts): Promise<PrivateIdentity> {
  for (let attempt = 1; ; attempt++) {
    const head = await readPublicHead(publicStore, ring, origin);
    const identity = await readPrivateIdentity(privateStore);
    const mismatch = mismatchOf(identity, head);
    if (mismatch === null) return identity;
    if (attempt === MAX_COMPARISONS) throw recordFailure(mismatch);
  }
}

/** Returns what a private store determines about its log: the id, and whether a new log may be created (`mayMake`). */
export const knownLogOf = ({ log, generation }: PrivateIdentity): KnownLog => ({
  id: log,
  mayMake: log === null && generation === null,
  mayBegin: true,
});

/**
 * Checks, when both stores are empty, that the log has no paid calls. Since nothing is paid before a day's plan was
 * published, a log with paid calls once had filled stores, which must have been lost. A new public log under the old
 * keys would look like a fork to every mirror.
 * @throws Failure `record`
 */
export async function refuseLostStores(
  identity: PrivateIdentity,
  log: Pick<Log, "id" | "partitions" | "bounds">,
): Promise<void> {
  if (!knownLogOf(identity).mayMake) return;
  for (let partition = 0; partition < log.partitions; partition++) {
    if ((await log.bounds("observations.paid", partition)).end === 0) continue;
    throw recordFailure(
      `log ${log.id} has paid calls, and private and public store are empty: put both back from their backups`,
    );
  }
}

/**
 * Writes the mark (id of its log) into the private store, if the store has none.
 * @throws Failure `record`
 */
export async function markPrivate(
  privateStore: Store,
  { isMarked }: PrivateIdentity,
  log: Pick<Log, "id" | "partitions">,
): Promise<void> {
  if (!isMarked) await writeMark(privateStore, "private", log);
}

/**
 * Checks that the store of orders belongs to this log. Objects whose order is not in the log are removed, so with the
 * store of another log paid answers would be lost.
 * @throws Failure `record`
 */
export async function refuseOtherOrders(store: Store, log: Pick<Log, "id" | "partitions">): Promise<void> {
  const mark = await readMark(store, "orders");
  if (mark) refuseOtherLog(mark, "orders", log);
  else await writeMark(store, "orders", log);
}

/**
 * Returns what a process without the private store knows about the log. Such a process does not create a log if a
 * record is published already.
 */
export async function knownLogOfPublished(
  publicStore: Pick<Store, "get">,
  ring: Keyring,
  origin: string,
): Promise<KnownLog> {
  const head = await readPublicHead(publicStore, ring, origin);
  return { id: null, mayMake: head === null, mayBegin: false };
}

/**
 * Makes keys for a new record, unless keys exist. Refuses to make new keys for an existing record: readers could not
 * verify that record any more, and the opaque names that are derived from the secrets would change.
 * @returns true if the keys were made; false if they existed already
 * @throws Failure `record` if the record's keys are lost
 */
export async function ensureKeysFor(config: Config, validFrom: Date): Promise<boolean> {
  if (!hasKeyring(foldersOf(config.data_dir).keys)) await refuseLostKeys(config);
  return ensureKeys(config.data_dir, validFrom);
}

async function refuseLostKeys(config: Config): Promise<void> {
  const leftovers = await describeLeftovers(config);
  if (leftovers === null) return;
  const { keys } = foldersOf(config.data_dir);
  throw recordFailure(
    `there are no keys in ${keys}, and ${leftovers} of a record is here: put the keys back from your copy`,
  );
}

/**
 * Checks a data folder, for the command `doctor`, as the start of the service does, but creates nothing.
 * @returns the expected identity of the log, and a description of the record; null: there is no record yet
 * @throws Failure `record`, BadPrivateObject, Failure `keys`
 */
export async function examineRecord(
  config: Config,
): Promise<{ known: KnownLog; description: string; checkLog: (log: Log) => Promise<void> } | null> {
  const folders = foldersOf(config.data_dir);
  if (!hasKeyring(folders.keys)) {
    await refuseLostKeys(config);
    return null;
  }
  const ring = readRing(folders.keys);
  const origin = originOf(config.base_url);
  const stores = await Promise.all(
    (["private", "public"] as const).map(async (name) =>
      config.stores[name] === null && !existsSync(folders[name])
        ? EMPTY_STORE
        : openStore(config, name, folders[name], false),
    ),
  );
  try {
    const [privateStore, publicStore] = stores as [Store, Store];
    const identity = await checkRecord({ privateStore, publicStore, ring, origin });
    const leaves = identity.generation?.new.size ?? 0;
    const known = { ...knownLogOf(identity), mayBegin: false };
    const description = known.mayMake ? "no record yet" : `log ${identity.log}, ${leaves} leaves published`;
    return { known, description, checkLog: (log) => refuseLostStores(identity, log) };
  } finally {
    for (const store of stores) await store.close();
  }
}

/** An empty store, used in place of a store whose folder is missing and must not be created by a check. */
const EMPTY_STORE = {
  get: async () => null,
  head: async () => null,
  list: async () => [],
  close: async () => undefined,
} satisfies Pick<Store, "get" | "head" | "list" | "close">;

/** Describes the parts of a record that exist without keys; null if there are none. */
async function describeLeftovers(config: Config): Promise<string | null> {
  const folders = foldersOf(config.data_dir);
  if (config.log === null && existsSync(logFileIn(folders.log))) return "the log";
  for (const name of ["private", "public"] as const) {
    if (config.stores[name] === null && !existsSync(folders[name])) continue;
    const store = await openStore(config, name, folders[name], false);
    try {
      const content = name === "public" ? await store.get(CHECKPOINT) : (await readPrivateIdentity(store)).log;
      if (content !== null) return `the ${name} store`;
    } finally {
      await store.close();
    }
  }
  return null;
}
