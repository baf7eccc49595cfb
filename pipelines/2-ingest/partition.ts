import { randomBytes } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { type Chain, checkLog, openChain, type Proposal } from "../../infra/chain/commits.ts";
import type { ChainHead } from "../../infra/chain/succession.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { IngestedTopic } from "../record/topics.ts";
import type { Batch } from "./batch.ts";
import { writeSegment } from "./day-segments.ts";
import { advanceLake, type Loadable, Loading, type LoadParts, lakeHas } from "./load.ts";

export interface PartitionParts extends LoadParts {
  log: Log;
  clock: Clock;
}

/** One partition of one topic on its way: its chain, and how far this process has brought it. */
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

  /** First position that no commit covers, as far as we know. */
  get next(): number {
    return this.#head?.next ?? 0;
  }

  /** Does the lake have everything that we know the chain to have? False before the first look, and after a failure. */
  inStep = false;

  /** Is this our log, and what does the chain say? @throws NotOurLog, RecordsLost, DamagedChain */
  async check(): Promise<void> {
    const head = await checkLog(this.chain, this.#parts.log);
    // A rival went on in our place: what he committed has to be loaded, also when the log ends where he did.
    if (head.n !== this.#head?.n) this.inStep = false;
    this.#head = head;
  }

  /** A file of this partition in the lake's work folder, under a name that nobody had before. */
  path(end: string): string {
    return join(this.#parts.lake.workDir, `${this.topic}-${this.partition}-${randomBytes(8).toString("hex")}.${end}`);
  }

  /** Load what the chain has and the lake has not. @returns records that were new */
  async catchUp(onSegment: () => void = () => {}): Promise<number> {
    const { topic, partition } = this;
    const head = await this.chain.head();
    this.#head = head;
    const has = await lakeHas(this.#parts.lake, topic, partition);
    const loading = new Loading(this.#parts);
    try {
      for (const ref of head.live) {
        if (has.files.has(ref.file)) continue;
        const path = this.path("parquet");
        await writeFile(path, await this.chain.readSegment(ref));
        await loading.add(this.#loadable(ref, path, ref.last + 1));
        onSegment();
      }
      await loading.load();
    } finally {
      await loading.discard();
    }
    const live = new Set(head.live.map((ref) => ref.file));
    const gone = [...has.files].filter((file) => !live.has(file));
    // A hole at the end of the chain, or a file that was replaced: both may leave nothing to load.
    if (gone.length > 0 || has.next === null || has.next < head.next) {
      await advanceLake(this.#parts.lake, { topic, partition, next: head.next }, gone);
    }
    this.inStep = true;
    return loading.fresh;
  }

  /**
   * A batch into a segment and a commit. What was published has to be loaded, or its file removed.
   * @returns null when another ingester was quicker: ours is dropped, and `catchUp` loads theirs
   */
  async publish(batch: Batch): Promise<Loadable | null> {
    const path = this.path("parquet");
    let published: Loadable | null = null;
    try {
      await writeSegment(this.#parts.lake, this, { lines: batch.lines, segment: path });
      const { rows, rejected } = batch;
      const ref = await this.chain.putSegment(await readFile(path), batch.first, batch.next - 1, { rows, rejected });
      const { first, next, lastEventId } = batch;
      if (await this.commit({ first, next, lastEventId, add: [ref], remove: [] }))
        published = this.#loadable(ref, path, next);
      return published;
    } finally {
      await rm(batch.lines, { force: true });
      if (!published) await rm(path, { force: true });
    }
  }

  /** A segment that was published here is in the lake. */
  loaded({ next }: Loadable): void {
    this.inStep = this.#head?.next === next;
  }

  /** True when the commit is ours. Until the lake has followed, we are out of step: a throw in between is mended later. */
  async commit(proposal: Omit<Proposal, "at">): Promise<boolean> {
    this.inStep = false;
    const { won, head } = await this.chain.commit({ ...proposal, at: this.#parts.clock.now() });
    this.#head = head;
    if (!won) for (const ref of proposal.add) await this.chain.dropSegment(ref);
    return won;
  }

  #loadable({ file, first, last, rows, bytes }: SegmentRef, path: string, next: number): Loadable {
    return { topic: this.topic, partition: this.partition, file, first, last, rows, bytes, path, next };
  }

  /** What the chain says now. */
  async head(): Promise<ChainHead> {
    return this.chain.head();
  }
}
