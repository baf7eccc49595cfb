import type { Clock } from "../../../infra/clock.ts";
import { type Keys, keysDocument } from "../../../infra/keys/keys.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { Logger } from "../../../infra/telemetry.ts";
import { publishPlan, readPlan } from "../../4-publish/day-plan.ts";
import type { Publisher } from "../../4-publish/publisher.ts";
import type { EvidenceReport } from "../../5-archive/evidence.ts";
import { addDays, dayOf, rfc3339 } from "../../record/time.ts";
import { openArchiveParts } from "./archive-parts.ts";
import { openEvidenceParts, publishEvidence } from "./evidence.ts";
import { type FileArchiveParts, fileArchive } from "./file-archive.ts";
import { writeRefusal } from "./refusals.ts";
import { listFilesInUse, nameTables, PartitionTables } from "./tables.ts";

export interface PublishingParts {
  log: { id: string; partitions: number };
  privateStore: Store;
  publisher: Publisher;
  clock: Clock;
  logger: Logger;
}

/** What archiving needs beside the publisher: public store, keys and the engine that prints the lines. */
export type ArchivingParts = Omit<FileArchiveParts, "publisher" | "privateStore" | "log" | "logger">;

export interface TurnReport {
  /** Number of runs (results of one grading each) that were handled, including refused ones. */
  runs: number;
  /** Number of cards that were published. */
  cards: number;
  /** Number of the newest run that was handled; null for none. */
  run: number | null;
  /** Number of leaves of the public log after this turn. */
  tree_size: number;
}

/**
 * The publisher's part of the pipeline. Owners (processes that ingest and grade some partitions) write runs (results
 * of grading), tables and evidence files; the publisher publishes the cards of the runs as leaves of the tree (the
 * public Merkle log) and names the files. Several publishers may do this at once, since only one of them can create a
 * publication with a given number.
 */
export class Publishing {
  readonly #tables: PartitionTables;
  readonly #evidence: ReturnType<typeof openEvidenceParts>;
  readonly #archive: ReturnType<typeof openArchiveParts>;

  constructor(private readonly parts: PublishingParts) {
    this.#tables = new PartitionTables(parts.privateStore, parts.log);
    this.#evidence = openEvidenceParts(parts.privateStore, parts.log);
    this.#archive = openArchiveParts(parts.privateStore, parts.log);
  }

  /** Recovers the publisher's state. If the public log has no keys document yet, publishes it as the first leaf. */
  async start(ring: Keys["ring"]): Promise<void> {
    await this.parts.publisher.start();
    await this.parts.publisher.publishKeys(keysDocument(ring));
  }

  /** Publishes every run that waits, with its corrections and listings. */
  async takeRuns(): Promise<TurnReport> {
    const { publisher, privateStore, clock, log } = this.parts;
    // A refusal is written before a later run is published. If this process dies first, the next publisher refuses
    // the run again and writes the refusal.
    const results = await publisher.takeNewRuns(({ n, reason }) =>
      writeRefusal(privateStore, { v: 1, log: log.id, run: n, reason: reason ?? "", at: rfc3339(clock.now()) }),
    );
    return {
      runs: results.length,
      cards: results.reduce((sum, { cards }) => sum + cards, 0),
      run: results.at(-1)?.n ?? null,
      tree_size: publisher.fold.size,
    };
  }

  /**
   * Names the newest tables of all owners in the view, the file by which the processes that answer clients find them.
   * @returns number of partitions with a table
   */
  nameTables(): Promise<number> {
    return nameTables(this.parts.publisher, this.#tables);
  }

  /**
   * Deletes objects of the public store that nothing names any more.
   * @returns number of deleted objects
   */
  async collectGarbage(): Promise<number> {
    return this.parts.publisher.collectGarbage(await listFilesInUse(this.#tables));
  }

  /**
   * Publishes the evidence files of each day for which all owners have written theirs, and of records that arrived
   * late.
   */
  publishEvidence(): Promise<EvidenceReport> {
    const { publisher, privateStore, logger, log, clock } = this.parts;
    const parts = { publisher, privateStore, logger, partitions: log.partitions, now: clock.now() };
    return publishEvidence(parts, this.#evidence);
  }

  /**
   * Writes and publishes the archive files of each old day that the lists of all owners cover, and of records that
   * arrived late.
   */
  publishArchive(archivingParts: ArchivingParts): ReturnType<typeof fileArchive> {
    const { publisher, privateStore, logger, log } = this.parts;
    return fileArchive({ ...archivingParts, publisher, privateStore, logger, log }, this.#archive);
  }

  /**
   * Publishes the commitments to the plans of today's and tomorrow's calls, as far as observers have drawn them.
   * @returns number of these plans
   */
  async publishPlans(): Promise<number> {
    const { privateStore, publisher, clock } = this.parts;
    const now = clock.now();
    let published = 0;
    for (const day of [dayOf(now), addDays(dayOf(now), 1)]) {
      const plan = await readPlan(privateStore, day);
      if (!plan) continue;
      await publishPlan({ privateStore, publisher, now }, plan);
      published++;
    }
    return published;
  }

  buildIndex(): Promise<void> {
    return this.parts.publisher.buildIndex();
  }
}
