import { z } from "zod";
import { Failure } from "../errors.ts";
import { Sha256Hex } from "../sha256-hex.ts";
import { checkKey } from "../store/store.ts";

/**
 * Every commit whose number is a multiple of this holds the list of all live files, so a reader has to open at most
 * this many commits.
 */
export const SNAPSHOT_EVERY = 64;

const offset = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

/** The file beside a segment that holds the rejected records of its range, with the reasons. */
const sideFile = z.looseObject({ file: z.string(), bytes: offset, sha256: Sha256Hex });

/**
 * A segment: an immutable data file (Parquet) with the log's records at positions first .. last, both inclusive.
 * `file` is its whole key in the store.
 */
const segment = z
  .looseObject({
    file: z.string(),
    first: offset,
    last: offset,
    /** Number of rows in the file. */
    rows: offset,
    /** Number of rejected records of the range, which are in the file `rejects` and not among the rows. */
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
    /** Number of the commit in its chain, from 0. */
    n: offset,
    /**
     * Positions [first, next) of the log became readable with this commit. first === next when the commit only replaces
     * files.
     */
    first: offset,
    next: offset,
    /**
     * Event id of the record at next - 1; null when it is unknown, because the chain is empty or the records are lost
     * (a gap).
     */
    last_event_id: z.string().nullable(),
    /** Segments that become live with this commit. */
    add: z.array(segment),
    /** Keys of the live files that this commit removes. */
    remove: z.array(z.string()),
    /** Time of the commit, as its writer stated it. */
    at: z.iso.datetime({ precision: 3 }),
    /**
     * Random name of the writer, drawn when it opened the chain. When the store's answer to a write was lost, this name
     * shows whether the write succeeded.
     */
    writer: z.string(),
    /** True when the log had lost the records [first, next) and an operator accepted the loss. */
    gap: z.literal(true).optional(),
    /** All live files (added and not removed) after this commit; present in every SNAPSHOT_EVERY-th commit. */
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
  /** Random id of the log, from its creation. */
  logId: string;
  topic: string;
  partition: number;
}

const COMMIT_KEY = /\/commit\/(\d{20})\.json$/;

/** Prefix of all chains; below it is a folder for each log. */
export const COMMIT_CHAIN_PREFIX = "lake/";

/** Returns the folder of the chain, without a trailing slash. @throws BadKey when a name cannot be part of a key */
export function chainFolder({ logId, topic, partition }: ChainPartition): string {
  return checkKey(`${COMMIT_CHAIN_PREFIX}${logId}/${topic}/${partition}`);
}

/** Returns the key of commit `n`. The number is padded to twenty digits, so that keys sort by number. */
export function commitKey(folder: string, n: number): string {
  return `${folder}/commit/${String(n).padStart(20, "0")}.json`;
}

/** Returns the number of the commit with this key, or null when the key does not belong to a commit. */
export function commitNumber(key: string): number | null {
  const match = COMMIT_KEY.exec(key);
  return match ? Number(match[1]) : null;
}

/** Returns the key of a data file. @param tag 8 hex digits that make the key unique */
export function dataKey(
  folder: string,
  first: number,
  last: number,
  tag: string,
  kind: "parquet" | "rejected",
): string {
  return `${folder}/data/${first}-${last}-${tag}.${kind}`;
}

/** Reports whether `key` belongs to a data file of this range in the chain of `folder`. */
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

/**
 * Thrown when a commit or a data file is missing, torn or altered, or when a commit does not follow from the previous
 * one.
 */
export class DamagedChain extends Failure {
  constructor(
    readonly key: string,
    why: string,
    cause?: unknown,
  ) {
    super("record", `chain: ${key} ${why}`, { cause });
  }
}

/** Thrown when the chain was made from another log than the open one. Going on would mix the records of two logs. */
export class NotOurLog extends Failure {
  constructor(partition: string, why: string) {
    super("record", `log ${partition} is not the one that was read so far: ${why}`);
  }
}

/**
 * Thrown when the log dropped the records [first, next) before they were read. An operator can accept the gap; reading
 * then goes on after it.
 */
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

/** Thrown for a proposed commit that would break the chain. The caller made a mistake; a lost race is not an error. */
export class BadProposal extends Failure {
  constructor(why: string) {
    super("failed", `chain: ${why}`);
  }
}
