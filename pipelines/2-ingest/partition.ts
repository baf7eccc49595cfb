import { randomBytes } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { type Chain, checkLastRecord, checkLog, openChain, type Proposal } from "../../infra/chain/commits.ts";
import type { ChainHead } from "../../infra/chain/succession.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { IngestedTopic } from "../record/topics.ts";
import type { Batch } from "./batch.ts";
import { writeSegment } from "./day-segments.ts";
import { advanceLake, type Loadable, type LoadParts, readLoadedFiles, SegmentLoader } from "./load.ts";

export interface PartitionParts extends LoadParts {
  log: Log;
  clock: Clock;
}

/**
 * One partition of one topic: its commit chain, and how far this process has committed it and loaded it into the lake
 * (a database).
 */
export class Partition {
  readonly topic: IngestedTopic;
  readonly partition: number;
  readonly chain: Chain;
  readonly #parts: PartitionParts;
  #head: ChainHead | null = null;

  constructor(parts: PartitionParts, topic: IngestedTopic, partition: number) {
    this.#parts = parts;
    this.topic = topic;
    this.partition = partition;
    this.chain = openChain(parts.privateStore, { logId: parts.log.id, topic, partition });
  }

  /** First offset that no commit covers, as far as this process knows. */
  get next(): number {
    return this.#head?.next ?? 0;
  }

  /** Has the lake loaded every commit that this process knows of? False before the first check, and after a failure. */
  isUpToDate = false;

  /**
   * Reads the head (newest commit) of the chain and checks that the chain was made from this log.
   * @throws NotOurLog, RecordsLost, DamagedChain
   */
  async check(): Promise<void> {
    const head = await checkLog(this.chain, this.#parts.log);
    // Another ingester has committed. Its segments must be loaded even if the log has no further record.
    if (head.n !== this.#head?.n) this.isUpToDate = false;
    this.#head = head;
  }

  /**
   * Checks that the log still holds the last committed record. Called before records after it are read.
   * @throws NotOurLog
   */
  async checkLastRecord(): Promise<void> {
    if (this.#head) await checkLastRecord(this, this.#head, this.#parts.log);
  }

  /** Returns a new path for a file of this partition in the lake's work folder. */
  path(extension: string): string {
    return join(
      this.#parts.lake.workDir,
      `${this.topic}-${this.partition}-${randomBytes(8).toString("hex")}.${extension}`,
    );
  }

  /** Loads the segments of the chain that the lake does not have. @returns number of new records */
  async catchUp(onSegment: () => void = () => {}): Promise<number> {
    const { topic, partition } = this;
    const head = await this.chain.head();
    this.#head = head;
    const loadedFiles = await readLoadedFiles(this.#parts.lake, topic, partition);
    const loading = new SegmentLoader(this.#parts);
    try {
      for (const ref of head.live) {
        if (loadedFiles.files.has(ref.file)) continue;
        const path = this.path("parquet");
        await writeFile(path, await this.chain.readSegment(ref));
        await loading.add(this.#toLoadable(ref, path, ref.last + 1));
        onSegment();
      }
      await loading.load();
    } finally {
      await loading.discard();
    }
    const liveFiles = new Set(head.live.map((ref) => ref.file));
    const removedFiles = [...loadedFiles.files].filter((file) => !liveFiles.has(file));
    // A gap at the end of the chain, or a replaced file, changes the position or the files even if there is nothing to
    // load.
    if (removedFiles.length > 0 || loadedFiles.next === null || loadedFiles.next < head.next) {
      await advanceLake(this.#parts.lake, { topic, partition, next: head.next }, removedFiles);
    }
    this.isUpToDate = true;
    return loading.newRecords;
  }

  /**
   * Writes a batch as a segment and commits it. The caller loads the segment, or removes its file.
   * @returns null when another ingester committed first: then the segment is deleted, and `catchUp` loads that
   * ingester's segments
   */
  async publish(batch: Batch): Promise<Loadable | null> {
    const path = this.path("parquet");
    let published: Loadable | null = null;
    try {
      await writeSegment(this.#parts.lake, this, { lines: batch.linesPath, segment: path });
      const { rows, rejected } = batch;
      const ref = await this.chain.putSegment(await readFile(path), batch.first, batch.next - 1, { rows, rejected });
      const { first, next, lastEventId } = batch;
      if (await this.commit({ first, next, lastEventId, add: [ref], remove: [] }))
        published = this.#toLoadable(ref, path, next);
      return published;
    } finally {
      await rm(batch.linesPath, { force: true });
      if (!published) await rm(path, { force: true });
    }
  }

  /** Notes that a segment which `publish` returned is in the lake. */
  markLoaded({ next }: Loadable): void {
    this.isUpToDate = this.#head?.next === next;
  }

  /**
   * Makes a commit. Until the lake has loaded it, the partition is not up to date, so the next pass completes the work
   * if an error prevents the loading.
   * @returns true when the commit is ours, false when another ingester committed first
   */
  async commit(proposal: Omit<Proposal, "at">): Promise<boolean> {
    this.isUpToDate = false;
    const { won, head } = await this.chain.commit({ ...proposal, at: this.#parts.clock.now() });
    this.#head = head;
    if (!won) for (const ref of proposal.add) await this.chain.dropSegment(ref);
    return won;
  }

  #toLoadable(ref: SegmentRef, path: string, next: number): Loadable {
    return { ...ref, topic: this.topic, partition: this.partition, path, next };
  }
}
