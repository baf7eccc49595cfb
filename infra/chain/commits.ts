import { randomBytes } from "node:crypto";
import { canonicalBytes, sha256hex } from "../canonical.ts";
import { type Log, type LogRecord, OffsetGone } from "../log/log.ts";
import { highest } from "../store/numbered.ts";
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
import { type ChainHead, EMPTY_HEAD, follow, headOfSnapshot } from "./succession.ts";

export interface Proposal {
  /** Positions [first, next) become readable; first === next when files are only replaced (compaction). */
  first: number;
  next: number;
  /** Event id of the record at next - 1; that of the head when first === next. */
  lastEventId: string | null;
  add: readonly SegmentRef[];
  /** Keys of live files that `add` replaces. */
  remove: readonly string[];
  at: Date;
}

/** What a data file holds besides its bytes. */
interface SegmentContent {
  rows: number;
  /** Records of the range that did not parse: how many, and the bytes of the file that keeps them with their reasons. */
  rejected?: { records: number; bytes: Uint8Array };
}

/** `head` is the newest one either way. Lost: nothing of ours was written; drop or propose the files again from there. */
export type CommitResult = { won: boolean; head: ChainHead };

/**
 * The commit chain of one partition: which positions of a log have become which immutable files. A file exists when its
 * numbered commit was created. Any number of processes may write; for each number exactly one wins.
 */
export interface Chain extends ChainPartition {
  /** The newest head. @throws DamagedChain naming the object that is missing or unsound. */
  head(): Promise<ChainHead>;
  /**
   * Write the next commit. Lost when another process was quicker: it moved `next`, removed what we would replace, or
   * took the number. When it throws, the commit may have been written: propose the same again, it cannot be written twice.
   * @throws BadProposal when the proposal is unsound by itself.
   */
  commit(proposal: Proposal): Promise<CommitResult>;
  /** Accept that [first, next) is lost; everybody sees it in the chain from then on. */
  gap(first: number, next: number, at: Date): Promise<CommitResult>;
  /** Store a file for positions first .. last, both inclusive. It means nothing until a commit adds it. */
  putSegment(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef>;
  /** The bytes of a segment or of its `rejects`, proven by their sha256. @throws DamagedChain */
  readSegment(file: Pick<SegmentRef, "file" | "bytes" | "sha256">): Promise<Uint8Array>;
  /** Remove a file of ours whose commit lost; false when it is live after all and stays. */
  dropSegment(ref: SegmentRef): Promise<boolean>;
  /** Every commit from the first, each proven to follow from the one before. */
  history(): AsyncGenerator<Commit>;
}

/** @throws BadKey when log id or topic cannot be part of a key. Reads nothing. */
export function openChain(store: Store, of: ChainPartition): Chain {
  return new StoreChain(store, of);
}

class StoreChain implements Chain {
  readonly logId: string;
  readonly topic: string;
  readonly partition: number;
  readonly #store: Store;
  readonly #folder: string;
  readonly #writer = randomBytes(8).toString("hex");
  /** Data files of this process so far. */
  #written = 0;
  #head = EMPTY_HEAD;

  constructor(store: Store, of: ChainPartition) {
    this.logId = of.logId;
    this.topic = of.topic;
    this.partition = of.partition;
    this.#store = store;
    this.#folder = chainFolder(of);
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

  async #propose(proposal: Proposal, gap: boolean): Promise<CommitResult> {
    const head = await this.head();
    const live = new Set(head.live.map((ref) => ref.file));
    const late = proposal.first < head.next || proposal.remove.some((file) => !live.has(file));
    // Names are never used twice: a file that is live already was won by an earlier try whose answer was lost.
    const ours = proposal.add.length > 0 && proposal.add.every((ref) => live.has(ref.file));
    if (late) return { won: ours, head };
    const commit = this.#drawUp(proposal, head, gap);
    const won = await this.#create(commit);
    return { won, head: await this.head() };
  }

  #drawUp(proposal: Proposal, head: ChainHead, gap: boolean): Commit {
    const { first, next, lastEventId, add, remove, at } = proposal;
    const n = head.n + 1;
    const plain: Commit = {
      n,
      first,
      next,
      last_event_id: lastEventId,
      add: [...add],
      remove: [...remove],
      at: at.toISOString(),
      writer: this.#writer,
      ...(gap && { gap: true }),
    };
    const { live } = follow(head, plain, this.#folder);
    return n % SNAPSHOT_EVERY === 0 ? { ...plain, live: [...live] } : plain;
  }

  /** Whether the commit with this number is ours now. */
  async #create(commit: Commit): Promise<boolean> {
    const key = commitKey(this.#folder, commit.n);
    const bytes = canonicalBytes(commit);
    parseOwn(bytes, key, commit.n);
    const { result } = await this.#store.create(key, bytes, { contentType: "application/json" });
    if (result === "created") return true;
    // A store may have kept our first try and lost the answer: the writer's name in it tells it from a rival's.
    const found = await this.#store.get(key);
    return found !== null && Buffer.from(found.bytes).equals(bytes);
  }

  async putSegment(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef> {
    const { rows, rejected } = content;
    const kept = rejected && rejected.records > 0 ? rejected : undefined;
    const ref = { first, last, rows, rejected: kept?.records ?? 0 };
    const data = await this.#createFile(bytes, first, last, "parquet");
    if (!kept) return { ...ref, ...data };
    return { ...ref, ...data, rejects: await this.#createFile(kept.bytes, first, last, "rejected") };
  }

  /** A name is never used twice, not even for equal bytes: a rival who made the same file must not lose his with ours. */
  async #createFile(bytes: Uint8Array, first: number, last: number, kind: "parquet" | "rejected") {
    const sha256 = sha256hex(bytes);
    // Two tries in 2^32 meet an old name at worst; three in a row do not happen.
    for (let tries = 0; tries < 3; tries++) {
      const tag = sha256hex(`${sha256} ${this.#writer} ${this.#written++}`).slice(0, 8);
      const file = dataKey(this.#folder, first, last, tag, kind);
      const { result } = await this.#store.create(file, bytes, { contentType: "application/octet-stream" });
      if (result === "created") return { file, bytes: bytes.byteLength, sha256 };
    }
    throw new Error(`no free name for ${first} to ${last} in ${this.#folder}`);
  }

  async readSegment(file: Pick<SegmentRef, "file" | "bytes" | "sha256">): Promise<Uint8Array> {
    const found = await this.#store.get(file.file, { maxBytes: Math.max(file.bytes, 1) });
    if (!found) throw new DamagedChain(file.file, "is missing");
    const sha256 = sha256hex(found.bytes);
    if (sha256 !== file.sha256) throw new DamagedChain(file.file, `has sha256 ${sha256}, committed was ${file.sha256}`);
    return found.bytes;
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
}

/** What no reader would accept is not written: a commit is never replaced, so its number would be lost to all. */
function parseOwn(bytes: Uint8Array, key: string, n: number): void {
  try {
    parseCommit(bytes, key, n);
  } catch (error) {
    throw new BadProposal(`${error instanceof Error ? error.message : error}`);
  }
}

/**
 * At start: is this the log that the chain was made from, and does it still keep what comes next?
 * Returns the head; reading goes on at `head.next`.
 * @throws NotOurLog when the log is another one, shorter, or holds another record where ours was.
 * @throws RecordsLost when records were dropped before they were committed; until the gap is accepted.
 */
export async function checkLog(chain: Chain, log: Log): Promise<ChainHead> {
  const { topic, partition } = chain;
  const name = `${topic}/${partition}`;
  if (log.id !== chain.logId) throw new NotOurLog(name, `its id is ${log.id}, the chain's ${chain.logId}`);
  const head = await chain.head();
  const { start, end } = await log.bounds(topic, partition);
  if (end < head.next) throw new NotOurLog(name, `it ends at ${end}, ${head.next} was reached already`);
  if (start > head.next) throw new RecordsLost(name, head.next, start);
  const last = head.next - 1;
  if (head.lastEventId === null || last < start) return head;
  const record = await recordAt(log, topic, partition, last);
  if (record && record.eventId !== head.lastEventId) {
    throw new NotOurLog(name, `record ${last} is ${record.eventId}, it was ${head.lastEventId}`);
  }
  return head;
}

/** Null when it was dropped since we looked, which is no contradiction. */
async function recordAt(log: Log, topic: string, partition: number, offset: number): Promise<LogRecord | null> {
  try {
    const [record] = await log.read(topic, partition, offset, { maxRecords: 1 });
    return record?.offset === offset ? record : null;
  } catch (error) {
    if (error instanceof OffsetGone) return null;
    throw error;
  }
}

/**
 * The newest head, going on from one that is known (EMPTY_HEAD for none). Opens at most SNAPSHOT_EVERY commits however
 * long the chain is, and the next one alone when nothing happened.
 * @throws DamagedChain naming the commit that is missing or unsound.
 */
async function readHead(store: Store, folder: string, known: ChainHead): Promise<ChainHead> {
  let head = known;
  if (known.n >= 0) {
    for (let i = 0; i < SNAPSHOT_EVERY; i++) {
      const commit = await readCommit(store, folder, head.n + 1);
      if (!commit) return head;
      head = checked(folder, commit.n, () => follow(head, commit, folder));
    }
  }
  const last = await findLast(store, folder, head.n);
  return last === head.n ? head : loadHead(store, folder, last);
}

/** One commit, or null when it is not there. @throws DamagedChain when it cannot be read as one. */
async function readCommit(store: Store, folder: string, n: number): Promise<Commit | null> {
  const key = commitKey(folder, n);
  const found = await store.get(key);
  return found && parseCommit(found.bytes, key, n);
}

/** Every commit in order, each proven to follow from the one before. @throws DamagedChain */
async function* readHistory(store: Store, folder: string): AsyncGenerator<Commit> {
  const last = await findLast(store, folder, EMPTY_HEAD.n);
  let head = EMPTY_HEAD;
  for (let n = 0; n <= last; n += SNAPSHOT_EVERY) {
    for (const commit of await readRange(store, folder, n, Math.min(n + SNAPSHOT_EVERY - 1, last))) {
      head = checked(folder, commit.n, () => follow(head, commit, folder));
      yield commit;
    }
  }
}

async function loadHead(store: Store, folder: string, last: number): Promise<ChainHead> {
  const base = last - (last % SNAPSHOT_EVERY);
  const [snapshot, ...later] = await readRange(store, folder, base, last);
  let head = checked(folder, base, () => headOfSnapshot(snapshot!, folder));
  if (base === 0) head = checked(folder, 0, () => follow(EMPTY_HEAD, snapshot!, folder));
  for (const commit of later) head = checked(folder, commit.n, () => follow(head, commit, folder));
  return head;
}

/** At most SNAPSHOT_EVERY at once. */
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
 * Number of the last commit, -1 when there is none, looked for from `known` on. A missing commit would look like the end,
 * and the next writer would fill the hole with another history, so one listing asks what lies beyond.
 */
async function findLast(store: Store, folder: string, known: number): Promise<number> {
  const has = async (n: number) => (await store.head(commitKey(folder, n))) !== null;
  for (let low = known; ; ) {
    low = await highest(low, has);
    const startAfter = low < 0 ? `${folder}/commit/` : commitKey(folder, low);
    const [beyond] = await store.list(`${folder}/commit/`, { startAfter, limit: 1 });
    if (!beyond) return low;
    if (commitNumber(beyond.key) === null) throw new DamagedChain(beyond.key, "is no commit");
    // Written between the probe and the listing: search on. Else it is a hole.
    if (!(await has(low + 1))) throw new DamagedChain(commitKey(folder, low + 1), "is missing, later commits exist");
  }
}

/** A rule broken by what is stored is damage, and the commit that shows it is named. */
function checked<T>(folder: string, n: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof BadProposal)
      throw new DamagedChain(commitKey(folder, n), `is unsound: ${error.message}`, error);
    throw error;
  }
}
