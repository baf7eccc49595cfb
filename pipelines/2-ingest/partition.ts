import { randomBytes } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { type Chain, checkLog, openChain, type Proposal } from "../../infra/chain/commits.ts";
import type { ChainHead } from "../../infra/chain/succession.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Batch } from "./batch.ts";
import { type DaySegmentsParts, openDaySegments, writeSegment } from "./day-segments.ts";
import { advanceLake, type Loadable, lakeHas, loadSegment } from "./load.ts";

export interface PartitionParts {
  log: Log;
  privateStore: Store;
  lake: Lake;
  clock: Clock;
  ownHosts: ReadonlySet<string>;
}

/** A segment of ours that is committed, and still has to be loaded. */
export interface Published {
  ref: SegmentRef;
  /** Its bytes on this machine. */
  path: string;
  next: number;
}

/** One partition of one topic on its way: its chain, and how far this process has brought it. */
export class Partition {
  readonly topic: string;
  readonly partition: number;
  readonly chain: Chain;
  readonly #parts: PartitionParts;
  #head: ChainHead | null = null;

  constructor(parts: PartitionParts, topic: string, partition: number) {
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
  async catchUp(): Promise<number> {
    const { topic, partition } = this;
    const head = await this.chain.head();
    this.#head = head;
    const has = await lakeHas(this.#parts.lake, topic, partition);
    let fresh = 0;
    for (const ref of head.live) {
      if (has.files.has(ref.file)) continue;
      const path = this.path("parquet");
      await writeFile(path, await this.chain.readSegment(ref));
      fresh += await this.#load(ref, path, ref.last + 1);
    }
    const live = new Set(head.live.map((ref) => ref.file));
    const gone = [...has.files].filter((file) => !live.has(file));
    // A hole at the end of the chain, or a file that was replaced: both may leave nothing to load.
    if (gone.length > 0 || has.next === null || has.next < head.next) {
      await advanceLake(this.#parts.lake, { topic, partition, next: head.next }, gone);
    }
    this.inStep = true;
    return fresh;
  }

  /**
   * A batch into a segment and a commit. What was published has to be loaded, or its file removed.
   * @returns null when another ingester was quicker: ours is dropped, and `catchUp` loads theirs
   */
  async publish(batch: Batch): Promise<Published | null> {
    const path = this.path("parquet");
    let published: Published | null = null;
    try {
      await writeSegment(this.#parts.lake, this, { lines: batch.lines, segment: path });
      const { rows, rejected } = batch;
      const ref = await this.chain.putSegment(await readFile(path), batch.first, batch.next - 1, { rows, rejected });
      const { first, next, lastEventId } = batch;
      if (await this.commit({ first, next, lastEventId, add: [ref], remove: [] })) published = { ref, path, next };
      return published;
    } finally {
      await rm(batch.lines, { force: true });
      if (!published) await rm(path, { force: true });
    }
  }

  /** What was published into the lake, in the order of the chain. @returns records that were new */
  load({ ref, path, next }: Published): Promise<number> {
    return this.#load(ref, path, next);
  }

  /** True when the commit is ours. Until the lake has followed, we are out of step: a throw in between is mended later. */
  async commit(proposal: Omit<Proposal, "at">): Promise<boolean> {
    this.inStep = false;
    const { won, head } = await this.chain.commit({ ...proposal, at: this.#parts.clock.now() });
    this.#head = head;
    if (!won) for (const ref of proposal.add) await this.chain.dropSegment(ref);
    return won;
  }

  /** What the chain says now. */
  async head(): Promise<ChainHead> {
    return this.chain.head();
  }

  async #load(ref: SegmentRef, path: string, next: number): Promise<number> {
    const { topic, partition } = this;
    const segment: Loadable = { topic, partition, file: ref.file, rows: ref.rows, path, next };
    const { lake, privateStore, log } = this.#parts;
    try {
      await knowLeft({ lake, privateStore, logId: log.id }, segment);
      const fresh = await loadSegment(this.#parts.lake, segment, this.#parts.ownHosts);
      this.inStep = this.#head?.next === next;
      return fresh;
    } finally {
      await rm(path, { force: true });
    }
  }
}

/**
 * Before a segment is loaded: of filed days that it has records of, or of a day beside, the ids of what left the lake, so
 * that a copy of such a record is known as one. They are read from the segments that are loaded, which is slow and rare: a
 * record that comes months late. Who loads the log in its order reads next to nothing. Ids of other days go.
 * @throws DamagedChain, and what lake and store throw
 */
async function knowLeft(
  parts: Omit<DaySegmentsParts, "lake"> & { lake: Lake },
  { topic, partition: part, path }: Loadable,
): Promise<void> {
  const { lake } = parts;
  const near = await lake.all<{ type: string; day: string; known: boolean }>(sql("archive/copies:days"), {
    path,
    part,
  });
  const unknown = near.filter(({ known }) => !known);
  if (unknown.length === 0) return;
  const { next } = await lakeHas(lake, topic, part);
  const days = JSON.stringify([...new Set(near.map(({ day }) => day))]);
  const types = JSON.stringify([...new Set(near.map(({ type }) => type))]);
  await lake.run(sql("archive/copies:forget"), { part, types, days });
  for (const { type, day } of unknown) {
    const segments = await openDaySegments(parts, { partition: part, day, below: { [topic]: next ?? 0 } });
    try {
      const { files } = segments;
      await lake.transaction(async (tx) => {
        if (files !== null) await tx.run(sql("archive/copies:ids"), { files, type, day, part });
        await tx.run("INSERT INTO left_day VALUES ($type, $day::DATE, $part)", { type, day, part });
      });
    } finally {
      await segments.close();
    }
  }
}
