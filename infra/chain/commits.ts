import { randomBytes } from "node:crypto";
import { canonicalBytes } from "../canonical.ts";
import { type Log, type LogRecord, OffsetGone } from "../log/log.ts";
import type { Store } from "../store/store.ts";
import { type Commit, parseCommit, type SegmentRef, SNAPSHOT_EVERY } from "./commit.ts";
import { BadProposal, NotOurLog, RecordsLost } from "./errors.ts";
import { type ChainPartition, chainFolder, commitKey } from "./keys.ts";
import { readHead, readHistory } from "./reading.ts";
import { type SegmentContent, Segments } from "./segments.ts";
import { type ChainHead, EMPTY_HEAD, follow } from "./succession.ts";

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
  /** Store a file for positions first .. last, both inclusive; see {@link Segments.put}. */
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
  readonly #segments: Segments;
  #head = EMPTY_HEAD;

  constructor(store: Store, of: ChainPartition) {
    this.logId = of.logId;
    this.topic = of.topic;
    this.partition = of.partition;
    this.#store = store;
    this.#folder = chainFolder(of);
    this.#segments = new Segments(store, this.#folder, this.#writer);
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

  putSegment(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef> {
    return this.#segments.put(bytes, first, last, content);
  }

  readSegment(file: Pick<SegmentRef, "file" | "bytes" | "sha256">): Promise<Uint8Array> {
    return this.#segments.read(file);
  }

  async dropSegment(ref: SegmentRef): Promise<boolean> {
    const { live } = await this.head();
    if (live.some(({ file }) => file === ref.file)) return false;
    await this.#segments.remove(ref);
    return true;
  }

  history(): AsyncGenerator<Commit> {
    return readHistory(this.#store, this.#folder);
  }
}

/** What no reader would accept must not be written: the number would be burnt for everybody. */
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
