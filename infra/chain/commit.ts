import { z } from "zod";
import { Failure } from "../errors.ts";
import { Sha256Hex } from "../sha256-hex.ts";
import { checkKey } from "../store/store.ts";

/** Every commit whose number divides by this repeats the list of live files, so a reader opens at most this many. */
export const SNAPSHOT_EVERY = 64;

const offset = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

const sideFile = z.looseObject({ file: z.string(), bytes: offset, sha256: Sha256Hex });

/** One immutable data file. `file` is its whole key; it holds the positions first .. last, both inclusive. */
const segment = z
  .looseObject({
    file: z.string(),
    first: offset,
    last: offset,
    /** Rows in the file, and records of its range that were set aside in the `rejects` file. */
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
    /** Event id of the record at next - 1; null when that one is unknown (an empty chain, a gap). */
    last_event_id: z.string().nullable(),
    add: z.array(segment),
    remove: z.array(z.string()),
    at: z.iso.datetime({ precision: 3 }),
    /** Random name of the process that wrote it: after a lost answer it tells our own commit from a rival's. */
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

/** @throws DamagedChain naming `key` unless the bytes are commit `n`. */
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

/** Below it is a folder for each log. */
export const CHAINS = "lake/";

/** Folder of the chain, without a trailing slash. @throws BadKey when a name cannot be written as a key. */
export function chainFolder({ logId, topic, partition }: ChainPartition): string {
  return checkKey(`${CHAINS}${logId}/${topic}/${partition}`);
}

/** Twenty digits, so that the order of the keys is the order of the numbers. */
export function commitKey(folder: string, n: number): string {
  return `${folder}/commit/${String(n).padStart(20, "0")}.json`;
}

/** The number in a commit's key, or null when it is none. */
export function commitNumber(key: string): number | null {
  const found = COMMIT.exec(key);
  return found ? Number(found[1]) : null;
}

/** @param tag 8 hex digits that make the name unlike any other. */
export function dataKey(
  folder: string,
  first: number,
  last: number,
  tag: string,
  kind: "parquet" | "rejected",
): string {
  return `${folder}/data/${first}-${last}-${tag}.${kind}`;
}

/** Is `key` a data file of this range, of this very chain? */
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

/** A commit or a data file is missing, torn, altered or contradicts its neighbours. Nothing may be built on it. */
export class DamagedChain extends Failure {
  constructor(
    readonly key: string,
    why: string,
    cause?: unknown,
  ) {
    super("record", `chain: ${key} ${why}`, { cause });
  }
}

/** The chain was made from another log than the one at hand: going on would mix two histories. */
export class NotOurLog extends Failure {
  constructor(partition: string, why: string) {
    super("record", `log ${partition} is not the one that was read so far: ${why}`);
  }
}

/** The log no longer keeps records that were never read: [first, next). Accept the gap to go on without them. */
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
