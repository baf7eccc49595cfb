import { z } from "zod";
import { Failure } from "../errors.ts";
import { Sha256Hex } from "../sha256-hex.ts";
import { checkKey } from "../store/store.ts";

/** Every commit whose number is a multiple of this has the list of all live files, so a reader opens at most this many. */
export const SNAPSHOT_EVERY = 64;

const offset = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

const sideFile = z.looseObject({ file: z.string(), bytes: offset, sha256: Sha256Hex });

/** An immutable data file with the log's records at positions first .. last, both inclusive. `file` is its whole key. */
const segment = z
  .looseObject({
    file: z.string(),
    first: offset,
    last: offset,
    /** Number of rows in the file, and number of records of its range that are in the `rejects` file instead. */
    rows: offset,
    rejected: offset,
    bytes: offset,
    sha256: Sha256Hex,
    rejects: sideFile.optional(),
  })
  .refine((s) => s.first <= s.last, "first lies past last")
  .refine((s) => s.rejected > 0 === (s.rejects !== undefined), "rejected records and their file go together");
export type SegmentRef = z.infer<typeof segment>;

const commit = z
  .looseObject({
    n: offset,
    /** Positions [first, next) of the log became readable with this commit; none when it only replaces files. */
    first: offset,
    next: offset,
    /** Event id of the record at next - 1; null when it is unknown (an empty chain, a gap). */
    last_event_id: z.string().nullable(),
    add: z.array(segment),
    remove: z.array(z.string()),
    at: z.iso.datetime({ precision: 3 }),
    /** Random name of the writing process. After a lost answer it shows whether that process wrote the commit. */
    writer: z.string(),
    /** The log had lost [first, next) and an operator accepted it. */
    gap: z.literal(true).optional(),
    /** Live files after this commit, in every SNAPSHOT_EVERY-th one. */
    live: z.array(segment).optional(),
  })
  .refine((c) => c.first <= c.next, "first lies past next")
  .refine(
    (c) => (c.n % SNAPSHOT_EVERY === 0) === (c.live !== undefined),
    "the list of live files is due here or is not",
  )
  .refine((c) => !c.gap || (c.add.length === 0 && c.remove.length === 0 && c.next > c.first), "a gap moves no file")
  .refine((c) => c.gap || c.next === c.first || c.last_event_id !== null, "records without a last event id");
export type Commit = z.infer<typeof commit>;

/** Parses commit `n`. @throws DamagedChain naming `key` when the bytes are not that commit. */
export function parseCommit(bytes: Uint8Array, key: string, n: number): Commit {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new DamagedChain(key, "is no JSON", error);
  }
  const parsed = commit.safeParse(json);
  if (!parsed.success) throw new DamagedChain(key, z.prettifyError(parsed.error), parsed.error);
  if (parsed.data.n !== n) throw new DamagedChain(key, `says it is commit ${parsed.data.n}`);
  return parsed.data;
}

/** The partition of a log that one chain follows. */
export interface ChainPartition {
  /** Id drawn when the log was created. */
  logId: string;
  topic: string;
  partition: number;
}

const COMMIT = /\/commit\/(\d{20})\.json$/;

/** Prefix of all chains; below it is a folder for each log. */
export const COMMIT_CHAIN_PREFIX = "lake/";

/** Folder of the chain, without a trailing slash. @throws BadKey when a name cannot be written as a key. */
export function chainFolder({ logId, topic, partition }: ChainPartition): string {
  return checkKey(`${COMMIT_CHAIN_PREFIX}${logId}/${topic}/${partition}`);
}

/** Key of commit `n`. The number has twenty digits, so the keys sort by number. */
export function commitKey(folder: string, n: number): string {
  return `${folder}/commit/${String(n).padStart(20, "0")}.json`;
}

/** Number of the commit with this key, or null when the key is not of a commit. */
export function commitNumber(key: string): number | null {
  const found = COMMIT.exec(key);
  return found ? Number(found[1]) : null;
}

/** Key of a data file. @param tag 8 hex digits that make the name unique */
export function dataKey(
  folder: string,
  first: number,
  last: number,
  tag: string,
  kind: "parquet" | "rejected",
): string {
  return `${folder}/data/${first}-${last}-${tag}.${kind}`;
}

/** Is `key` the key of a data file of this range in the chain of `folder`? */
export function isDataKey(
  folder: string,
  key: string,
  first: number,
  last: number,
  kind: "parquet" | "rejected",
): boolean {
  const tag = key.slice(-9 - kind.length, -1 - kind.length);
  return /^[0-9a-f]{8}$/.test(tag) && key === dataKey(folder, first, last, tag, kind);
}

/** A commit or a data file is missing, torn or altered, or a commit does not follow from the one before. */
export class DamagedChain extends Failure {
  constructor(
    readonly key: string,
    why: string,
    cause?: unknown,
  ) {
    super("record", `chain: ${key} ${why}`, { cause });
  }
}

/** The chain was made from another log than the one that is open; to go on would mix two histories. */
export class NotOurLog extends Failure {
  constructor(partition: string, why: string) {
    super("record", `log ${partition} is not the one that was read so far: ${why}`);
  }
}

/** The log dropped records [first, next) before they were read. An operator can accept the gap to go on without them. */
export class RecordsLost extends Failure {
  constructor(
    partition: string,
    readonly first: number,
    readonly next: number,
  ) {
    super(
      "record",
      `log ${partition} lost the records ${first} to ${next - 1} before they were read; accept the gap to go on`,
    );
  }
}

/** A commit that would break the chain: a mistake of the caller, not a lost race. */
export class BadProposal extends Failure {
  constructor(why: string) {
    super("failed", `chain: ${why}`);
  }
}
