import { z } from "zod";
import { Sha256Hex } from "../sha256-hex.ts";
import { DamagedChain } from "./errors.ts";

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
