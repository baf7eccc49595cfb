import { randomBytes } from "node:crypto";
import { canonicalBytes, sha256hex } from "../canonical.ts";
import { type Log, type LogRecord, OffsetGone } from "../log/log.ts";
import { findHighest } from "../store/numbered.ts";
import type { Store } from "../store/store.ts";
import {
  BadProposal,
  type ChainPartition,
  type Commit,
  chainFolder,
  commitKey,
  commitNumber,
  DamagedChain,
  dataKey,
  NotOurLog,
  parseCommit,
  RecordsLost,
  type SegmentRef,
  SNAPSHOT_EVERY,
} from "./commit.ts";
import { applyCommit, type ChainHead, EMPTY_HEAD, headOfSnapshot } from "./succession.ts";

/** What a caller wants the next commit of a chain to record. */
export interface Proposal {
  /** Positions [first, next) become readable; first === next when files are only replaced (compaction). */
  first: number;
  next: number;
  /**
   * Event id of the log record at next - 1; when first === next, `lastEventId` of the head (the state after the last
   * commit).
   */
  lastEventId: string | null;
  /** Stored data files that become live with the commit. */
  add: readonly SegmentRef[];
  /** Keys of live files that `add` replaces. */
  remove: readonly string[];
  /** Time of the commit, which the commit records. */
  at: Date;
}

/** Number of rows of a data file, and the records of its range that were rejected. */
interface SegmentContent {
  rows: number;
  /** Number of records of the range that did not parse, and the bytes of a file with these records and the reasons. */
  rejected?: { records: number; bytes: Uint8Array };
}

/**
 * Result of a proposal, with the newest head. When `won` is false the commit was not written; the caller then deletes
 * its files, or proposes them again on top of `head`.
 */
export type CommitResult = { won: boolean; head: ChainHead };

/**
 * The commit chain of one partition of a log: a list of numbered commits that record which positions of the log are in
 * which immutable files. A file belongs to the chain once a commit that adds it exists. Any number of processes may
 * write; exactly one of them creates the commit of each number.
 */
export interface Chain extends ChainPartition {
  /**
   * Reads the head: the state of the chain after its newest commit.
   * @throws DamagedChain naming the object that is missing or unsound
   */
  head(): Promise<ChainHead>;
  /**
   * Writes the next commit. The proposal loses when another process has meanwhile moved `next`, removed a file that the
   * proposal replaces, or taken the commit's number. After an error the commit may or may not have been written: repeat
   * the same proposal, which never writes it twice.
   * @throws BadProposal when the proposal breaks the rules of the chain
   */
  commit(proposal: Proposal): Promise<CommitResult>;
  /** Writes a commit that accepts the loss of the records [first, next). */
  gap(first: number, next: number, at: Date): Promise<CommitResult>;
  /**
   * Stores a data file for positions first .. last, both inclusive, and beside it a file with the rejected records of
   * these positions, if there are any. The files are not live until a commit adds the returned segment.
   */
  putSegment(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef>;
  /**
   * Reads the bytes of a segment, or of the file with its rejected records (`rejects`), and checks their sha256.
   * @throws DamagedChain
   */
  readSegment(file: Pick<SegmentRef, "file" | "bytes" | "sha256">): Promise<Uint8Array>;
  /**
   * Deletes a segment of this process whose proposed commit was not written. If the segment is live after all, it is
   * kept, and the result is false.
   */
  dropSegment(ref: SegmentRef): Promise<boolean>;
  /** Yields every commit from the first on, and checks that each follows from the previous one. */
  history(): AsyncGenerator<Commit>;
  /** Yields the commits from the newest back to the first, reading at most SNAPSHOT_EVERY of them in advance. */
  newestFirst(): AsyncGenerator<Commit>;
}

/** Creates a chain object; reads nothing. @throws BadKey when the log id or the topic cannot be part of a key */
export function openChain(store: Store, partition: ChainPartition): Chain {
  return new StoreChain(store, partition);
}

class StoreChain implements Chain {
  readonly logId: string;
  readonly topic: string;
  readonly partition: number;
  readonly #store: Store;
  readonly #folder: string;
  readonly #writer = randomBytes(8).toString("hex");
  /** Number of names for data files that this object has tried, so that it tries none twice. */
  #usedNames = 0;
  #head = EMPTY_HEAD;

  constructor(store: Store, partition: ChainPartition) {
    this.logId = partition.logId;
    this.topic = partition.topic;
    this.partition = partition.partition;
    this.#store = store;
    this.#folder = chainFolder(partition);
  }

  async head(): Promise<ChainHead> {
    const head = await readHead(this.#store, this.#folder, this.#head);
    if (head.n > this.#head.n) this.#head = head;
    return head;
  }

  commit(proposal: Proposal): Promise<CommitResult> {
    return this.#propose(proposal, false);
  }

  gap(first: number, next: number, at: Date): Promise<CommitResult> {
    if (!(next > first)) throw new BadProposal(`[${first}, ${next}) is no gap`);
    return this.#propose({ first, next, lastEventId: null, add: [], remove: [], at }, true);
  }

  async #propose(proposal: Proposal, isGap: boolean): Promise<CommitResult> {
    const head = await this.head();
    const live = new Set(head.live.map((ref) => ref.file));
    const isLate = proposal.first < head.next || proposal.remove.some((file) => !live.has(file));
    // File names are never reused. So if the files of this proposal are live, an earlier attempt to commit it has
    // succeeded, and only the store's answer was lost.
    const isOurs = proposal.add.length > 0 && proposal.add.every((ref) => live.has(ref.file));
    if (isLate) return { won: isOurs, head };
    const commit = this.#buildCommit(proposal, head, isGap);
    const won = await this.#create(commit);
    return { won, head: await this.head() };
  }

  #buildCommit(proposal: Proposal, head: ChainHead, isGap: boolean): Commit {
    const { first, next, lastEventId, add, remove, at } = proposal;
    const n = head.n + 1;
    const commitWithoutLive: Commit = {
      n,
      first,
      next,
      last_event_id: lastEventId,
      add: [...add],
      remove: [...remove],
      at: at.toISOString(),
      writer: this.#writer,
      ...(isGap && { gap: true }),
    };
    const { live } = applyCommit(head, commitWithoutLive, this.#folder);
    return n % SNAPSHOT_EVERY === 0 ? { ...commitWithoutLive, live: [...live] } : commitWithoutLive;
  }

  /**
   * Creates the commit.
   * @returns true if the stored commit with its number is this one
   */
  async #create(commit: Commit): Promise<boolean> {
    const key = commitKey(this.#folder, commit.n);
    const bytes = canonicalBytes(commit);
    checkReadable(bytes, key, commit.n);
    const { result } = await this.#store.create(key, bytes, { contentType: "application/json" });
    if (result === "created") return true;
    // An earlier attempt may have stored our commit although its answer was lost. A commit of another writer differs
    // at least in the writer's name.
    const stored = await this.#store.get(key);
    return stored !== null && Buffer.from(stored.bytes).equals(bytes);
  }

  async putSegment(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef> {
    const { rows, rejected } = content;
    const rejectedFile = rejected && rejected.records > 0 ? rejected : undefined;
    const ref = { first, last, rows, rejected: rejectedFile?.records ?? 0 };
    const data = await this.#createFile(bytes, first, last, "parquet");
    if (!rejectedFile) return { ...ref, ...data };
    return { ...ref, ...data, rejects: await this.#createFile(rejectedFile.bytes, first, last, "rejected") };
  }

  /**
   * Stores a file under a new name even when equal bytes exist, so that deleting our file never deletes another
   * process's file.
   */
  async #createFile(bytes: Uint8Array, first: number, last: number, kind: "parquet" | "rejected") {
    const sha256 = sha256hex(bytes);
    // The name has 32 random bits, so it is rarely taken, and almost never three times in a row.
    for (let tries = 0; tries < 3; tries++) {
      const tag = sha256hex(`${sha256} ${this.#writer} ${this.#usedNames++}`).slice(0, 8);
      const file = dataKey(this.#folder, first, last, tag, kind);
      const { result } = await this.#store.create(file, bytes, { contentType: "application/octet-stream" });
      if (result === "created") return { file, bytes: bytes.byteLength, sha256 };
    }
    throw new Error(`no free name for ${first} to ${last} in ${this.#folder}`);
  }

  async readSegment(file: Pick<SegmentRef, "file" | "bytes" | "sha256">): Promise<Uint8Array> {
    const stored = await this.#store.get(file.file, { maxBytes: Math.max(file.bytes, 1) });
    if (!stored) throw new DamagedChain(file.file, "is missing");
    const sha256 = sha256hex(stored.bytes);
    if (sha256 !== file.sha256) throw new DamagedChain(file.file, `has sha256 ${sha256}, committed was ${file.sha256}`);
    return stored.bytes;
  }

  async dropSegment(ref: SegmentRef): Promise<boolean> {
    const { live } = await this.head();
    if (live.some(({ file }) => file === ref.file)) return false;
    await this.#store.delete(ref.file);
    if (ref.rejects) await this.#store.delete(ref.rejects.file);
    return true;
  }

  history(): AsyncGenerator<Commit> {
    return readHistory(this.#store, this.#folder);
  }

  newestFirst(): AsyncGenerator<Commit> {
    return readNewestFirst(this.#store, this.#folder, this.#head.n);
  }
}

/**
 * Refuses a commit that readers would reject. Since a commit is never replaced, a bad commit would block the chain for
 * ever.
 */
function checkReadable(bytes: Uint8Array, key: string, n: number): void {
  try {
    parseCommit(bytes, key, n);
  } catch (error) {
    throw new BadProposal(`${error instanceof Error ? error.message : error}`);
  }
}

/**
 * Checks at start that the chain was made from this log and that the log still has the next record to read.
 * @returns the head; reading goes on at `head.next`
 * @throws NotOurLog when the log has another id, is shorter than the chain, or holds another record at the chain's last
 * position
 * @throws RecordsLost when the log dropped records that no commit covers and no operator has accepted the gap
 */
export async function checkLog(chain: Chain, log: Log): Promise<ChainHead> {
  const { topic, partition } = chain;
  const name = `${topic}/${partition}`;
  if (log.id !== chain.logId) throw new NotOurLog(name, `its id is ${log.id}, the chain's ${chain.logId}`);
  const head = await chain.head();
  const { start, end } = await log.bounds(topic, partition);
  if (end < head.next) throw new NotOurLog(name, `it ends at ${end}, ${head.next} was reached already`);
  if (start > head.next) throw new RecordsLost(name, head.next, start);
  if (head.next > start) await checkLastRecord({ topic, partition }, head, log);
  return head;
}

/**
 * Checks that the log holds the last committed record where it was read, unless the log has dropped it. A log that lost
 * its newest records assigns their offsets again.
 * @throws NotOurLog
 */
export async function checkLastRecord(
  { topic, partition }: Pick<ChainPartition, "topic" | "partition">,
  { next, lastEventId }: Pick<ChainHead, "next" | "lastEventId">,
  log: Pick<Log, "read">,
): Promise<void> {
  if (lastEventId === null) return;
  const record = await recordAt(log, topic, partition, next - 1);
  if (record && record.eventId !== lastEventId) {
    throw new NotOurLog(`${topic}/${partition}`, `record ${next - 1} is ${record.eventId}, it was ${lastEventId}`);
  }
}

/** Returns the record at `offset`, or null when the log has dropped it. */
async function recordAt(
  log: Pick<Log, "read">,
  topic: string,
  partition: number,
  offset: number,
): Promise<LogRecord | null> {
  try {
    const [record] = await log.read(topic, partition, offset, { maxRecords: 1 });
    return record?.offset === offset ? record : null;
  } catch (error) {
    if (error instanceof OffsetGone) return null;
    throw error;
  }
}

/**
 * Reads the newest head (the state after the last commit), starting from a known one (EMPTY_HEAD when none is known).
 * It opens at most SNAPSHOT_EVERY commits after the known head. If the chain is longer, it opens the last commit that
 * lists all live files, and the fewer than SNAPSHOT_EVERY commits after it. When nothing is new it makes one request.
 * @throws DamagedChain naming the commit that is missing or unsound
 */
async function readHead(store: Store, folder: string, knownHead: ChainHead): Promise<ChainHead> {
  let head = knownHead;
  if (knownHead.n >= 0) {
    for (let i = 0; i < SNAPSHOT_EVERY; i++) {
      const commit = await readCommit(store, folder, head.n + 1);
      if (!commit) return head;
      head = withCommitInError(folder, commit.n, () => applyCommit(head, commit, folder));
    }
  }
  const last = await findLast(store, folder, head.n);
  return last === head.n ? head : loadHead(store, folder, last);
}

/** Reads commit `n`, or null when it does not exist. @throws DamagedChain when its bytes are not a commit. */
async function readCommit(store: Store, folder: string, n: number): Promise<Commit | null> {
  const key = commitKey(folder, n);
  const stored = await store.get(key);
  return stored && parseCommit(stored.bytes, key, n);
}

/** Yields every commit in order and checks that each follows from the one before. @throws DamagedChain */
async function* readHistory(store: Store, folder: string): AsyncGenerator<Commit> {
  const last = await findLast(store, folder, EMPTY_HEAD.n);
  let head = EMPTY_HEAD;
  for (let n = 0; n <= last; n += SNAPSHOT_EVERY) {
    for (const commit of await readRange(store, folder, n, Math.min(n + SNAPSHOT_EVERY - 1, last))) {
      head = withCommitInError(folder, commit.n, () => applyCommit(head, commit, folder));
      yield commit;
    }
  }
}

/** Yields the commits from the newest to the first. @param known number of a commit that exists; -1 for none */
async function* readNewestFirst(store: Store, folder: string, known: number): AsyncGenerator<Commit> {
  for (let last = await findLast(store, folder, known); last >= 0; ) {
    const first = last - (last % SNAPSHOT_EVERY);
    yield* (await readRange(store, folder, first, last)).reverse();
    last = first - 1;
  }
}

async function loadHead(store: Store, folder: string, last: number): Promise<ChainHead> {
  const base = last - (last % SNAPSHOT_EVERY);
  const [snapshot, ...later] = await readRange(store, folder, base, last);
  let head = withCommitInError(folder, base, () => headOfSnapshot(snapshot!, folder));
  if (base === 0) head = withCommitInError(folder, 0, () => applyCommit(EMPTY_HEAD, snapshot!, folder));
  for (const commit of later) head = withCommitInError(folder, commit.n, () => applyCommit(head, commit, folder));
  return head;
}

/** Reads commits first .. last at once; callers ask for at most SNAPSHOT_EVERY. */
function readRange(store: Store, folder: string, first: number, last: number): Promise<Commit[]> {
  return Promise.all(
    Array.from({ length: last - first + 1 }, async (_, i) => {
      const commit = await readCommit(store, folder, first + i);
      if (!commit) throw new DamagedChain(commitKey(folder, first + i), "is missing, later commits exist");
      return commit;
    }),
  );
}

/**
 * Finds the number of the last commit, from `known` on; -1 when there is none. A missing commit in the middle would
 * look like the end of the chain, and the next writer would put another history into the hole. So a listing checks that
 * no later commit exists.
 */
async function findLast(store: Store, folder: string, known: number): Promise<number> {
  const commitExists = async (n: number) => (await store.head(commitKey(folder, n))) !== null;
  for (let low = known; ; ) {
    low = await findHighest(low, commitExists);
    const startAfter = low < 0 ? `${folder}/commit/` : commitKey(folder, low);
    const [laterObject] = await store.list(`${folder}/commit/`, { startAfter, limit: 1 });
    if (!laterObject) return low;
    if (commitNumber(laterObject.key) === null) throw new DamagedChain(laterObject.key, "is no commit");
    // If commit low + 1 exists now, it was written just before the listing, so the search goes on. Otherwise it is
    // missing.
    if (!(await commitExists(low + 1)))
      throw new DamagedChain(commitKey(folder, low + 1), "is missing, later commits exist");
  }
}

/**
 * Runs `work` on commit `n`, which was read from the store. A BadProposal becomes a DamagedChain that names the commit.
 */
function withCommitInError<T>(folder: string, n: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof BadProposal)
      throw new DamagedChain(commitKey(folder, n), `is unsound: ${error.message}`, error);
    throw error;
  }
}
