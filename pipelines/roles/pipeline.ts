import { type NamedCatalogue, toCatalogue } from "../../infra/catalogues.ts";
import type { Clock } from "../../infra/clock.ts";
import { forEachConcurrent } from "../../infra/concurrency.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import { fixedPartitions } from "../../infra/log/ownership.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { type AskRunner, readDemandBefore } from "../1-observe/ask-runner.ts";
import { NotConfirmed, type Observer, type SpanReport } from "../1-observe/observer.ts";
import { drawPlanYielding, reservedMicro } from "../1-observe/plan/plan.ts";
import type { Caps } from "../1-observe/plan/spend.ts";
import type { Ingest } from "../2-ingest/ingest.ts";
import { planKey, publishPlan, readOrCreateSalt, readPlan, saltHash } from "../4-publish/day-plan.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import type { EvidenceReport } from "../5-archive/evidence.ts";
import { followArchive } from "../5-archive/follow.ts";
import type { ArchivePlace } from "../5-archive/place.ts";
import { type BudgetParts, createBudgetReport, storeReport } from "../budget/report.ts";
import type { ArchiveFold } from "../published/fold.ts";
import type { Memory } from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import { type DayPlan, summarizePlan } from "../record/plan.ts";
import { addDays, dayOf, dayStart } from "../record/time.ts";
import { type ArchiveReport, archiveDays, closeDays, createPrinterOpener } from "./days.ts";
import { Owner } from "./protocol/owner.ts";
import { Publishing } from "./protocol/publishing.ts";

/** Receives the results of a process's work, for its health report. */
export interface HealthReporter {
  /**
   * Runs work and reports whether it failed.
   * @param kind the kind of work to which it belongs (default: `name`)
   */
  during<T>(name: string, run: () => Promise<T>, kind?: string): Promise<T>;
  done(name: string): void;
  failed(name: string, error: unknown, kind?: string): void;
}

/** The parts of a machine that has all roles. */
export interface PipelineParts {
  clock: Clock;
  log: Pick<Log, "id" | "partitions">;
  privateStore: Store;
  publicStore: Store;
  lake: Lake;
  memory: Memory;
  ingest: Ingest;
  observer: Observer;
  publisher: Publisher;
  askRunner: AskRunner;
  caps: Caps;
  /** The operator's priorities for payment: whole numbers by host or capability id (id of an endpoint). */
  priority: Readonly<Record<string, number>>;
  /** Hosts that are never paid. */
  exclude?: readonly string[];
  logger: Logger;
  metrics: Metrics;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins: readonly string[];
  archive: ArchivePlace & { rowsPerFile?: number };
}

export interface GradeReport {
  /** Number of endpoints that were read. */
  caps: number;
  /** Number of rows that were read. */
  rows: number;
  /** Number of cards that were signed. */
  cards: number;
  /** Number of endpoints whose new card was left out, because it would change nothing in the published one. */
  leftOut: number;
}

const NO_HEALTH_REPORTS: Pick<HealthReporter, "during"> = { during: (_, run) => run() };

const CATALOGUES_AT_ONCE = 4;

/**
 * Largest number of endpoints for which the stored budget report has the cost of the next better letter. At this number
 * the report, which is made every ten minutes, takes some seconds.
 */
const MAX_BUDGET_ENDPOINTS = 500;

/**
 * All roles of the pipeline in one process, as they would work together on several machines: an observer, which calls
 * endpoints; the owner of every partition, which ingests and grades; and the publisher, which publishes the results
 * of each grading run. There is one method for each job, in the order of the data flow. Each may be called again
 * after any failure, since it continues from what is durable. The caller must not run a job twice at the same time.
 */
export class Pipeline {
  readonly #owner: Owner;
  readonly #publishing: Publishing;

  constructor(private readonly parts: PipelineParts) {
    const { log, publisher } = parts;
    const allPartitions = Array.from({ length: log.partitions }, (_, partition) => partition);
    this.#owner = new Owner({ ...parts, ownership: fixedPartitions(allPartitions), followed: publisher });
    this.#publishing = new Publishing(parts);
  }

  /**
   * Reads catalogues, and the lists that the sellers in them publish themselves; with `allSellers`, those of every
   * known seller. Several catalogues are read at once, so that a slow one delays no other. In simulated time no
   * catalogue is slow, so they are read one after the other.
   */
  async intake(catalogues: readonly NamedCatalogue[], allSellers = false): Promise<void> {
    const { observer, logger, metrics, clock } = this.parts;
    await forEachConcurrent(catalogues, clock.jumps ? 1 : CATALOGUES_AT_ONCE, async (catalogue) => {
      try {
        await observer.intakeCatalogue(catalogue);
      } catch (error) {
        // An error of one catalogue does not end the reading of others. If nothing can be written to the log, all
        // reading ends.
        if (error instanceof NotConfirmed) throw error;
        metrics?.count("touchstone_observe_listings_total", { result: "broken" });
        logger.error({ err: error, catalogue: toCatalogue(catalogue).url }, "a catalogue could not be taken in");
      }
    });
    if (allSellers) await observer.refreshSellers();
    await this.parts.ingest.pass();
  }

  /**
   * Continues with the catalogues whose reading stopped early and may continue now.
   * @returns number of these catalogues
   */
  async resumeIntake(catalogues: readonly NamedCatalogue[]): Promise<number> {
    const unfinished = this.parts.observer.unfinishedCatalogues(catalogues);
    if (unfinished.length > 0) await this.intake(unfinished);
    return unfinished.length;
  }

  /** Is any endpoint listed in the ingested records? */
  async hasListings(): Promise<boolean> {
    return (await this.parts.memory.listed()).length > 0;
  }

  /** Returns the plan of a day, which is drawn once and stored, after publishing a commitment to it. */
  async getPublishedPlan(day: string): Promise<DayPlan> {
    const { privateStore, publisher, clock } = this.parts;
    const plan = await this.getOrDrawPlan(day);
    await publishPlan({ privateStore, publisher, now: clock.now() }, plan);
    return plan;
  }

  /**
   * Returns the plan of a day. The first process that needs the plan draws and stores it; the publisher publishes a
   * commitment to it.
   */
  async getOrDrawPlan(day: string): Promise<DayPlan> {
    return (await readPlan(this.parts.privateStore, day)) ?? (await this.#drawPlan(day));
  }

  async #drawPlan(day: string): Promise<DayPlan> {
    const { privateStore, memory, lake, caps, priority, exclude = [], ownOrigins, clock } = this.parts;
    const salt = await readOrCreateSalt(privateStore, day);
    const [spentRow] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
    const spentBefore = (spentRow?.micro ?? 0n) + (await this.#unspentOfDayBefore(day));
    const demand = await readDemandBefore(lake, day);
    const listed = await memory.listed();
    const plan = await drawPlanYielding({
      day,
      salt,
      listed,
      caps,
      now: clock.now(),
      spentBefore,
      ownOrigins,
      demand,
      priority,
      exclude,
    });
    if (plan.salt_hash !== saltHash(salt)) throw new Error(`the plan of ${day} is not of its salt`);
    const { result } = await privateStore.create(planKey(day), Buffer.from(JSON.stringify(plan)));
    if (result !== "created") return (await readPlan(privateStore, day))!;
    const limits = { per_call: caps.perCall, per_day: caps.perDay, total: caps.total };
    const limitTexts = Object.fromEntries(Object.entries(limits).map(([name, micro]) => [name, formatMoney(micro)]));
    const spent_before = formatMoney(spentBefore);
    this.parts.logger.info({ ...summarizePlan(plan), limits: limitTexts, spent_before }, "the plan of a day was drawn");
    return plan;
  }

  /**
   * Returns the money that the previous day's plan may still spend if that day is not over yet, millionths of a
   * dollar.
   */
  async #unspentOfDayBefore(day: string): Promise<bigint> {
    const dayBefore = addDays(day, -1);
    if (this.parts.clock.now() >= dayStart(day)) return 0n;
    const plan = await readPlan(this.parts.privateStore, dayBefore);
    if (!plan) return 0n;
    const spentByCap = new Map<string, bigint>();
    for (const { cap, micro } of await this.parts.memory.spentOn(dayBefore))
      spentByCap.set(cap, (spentByCap.get(cap) ?? 0n) + micro);
    return plan.lines.reduce((sum, line) => {
      const unspent = reservedMicro(line) - (spentByCap.get(line.cap) ?? 0n);
      return unspent > 0n ? sum + unspent : sum;
    }, 0n);
  }

  /** Makes every call of the plan whose time is from `from` to before `to` and that is not recorded yet. */
  async observe(plan: DayPlan, from: Date, to: Date): Promise<SpanReport> {
    const report = await this.parts.observer.observeSpan(plan, from, to);
    await this.parts.observer.followUpCalls();
    await this.parts.observer.waitForShowings();
    return report;
  }

  /**
   * Writes all new records of the log into segments (files in the private store) and the lake (the database of the
   * log's rows).
   */
  async ingest(): Promise<void> {
    await this.parts.ingest.pass();
  }

  /** Joins small segments, and deletes objects of the private store that nothing needs any more. */
  async tidy(): Promise<void> {
    await this.parts.ingest.tidy();
  }

  /**
   * Ingests, grades the endpoints that have new records or whose card changes by time, and publishes the cards that
   * changed. After a failure the next call grades everything.
   */
  async grade(now: Date, health: Pick<HealthReporter, "during"> = NO_HEALTH_REPORTS): Promise<GradeReport> {
    // Ingest also runs separately before, so that the health report names the part that fails. The grading then finds
    // little left to ingest.
    if (health !== NO_HEALTH_REPORTS) await health.during("ingest", () => this.ingest());
    const { caps, rows, leftOut } = await this.#owner.grade(now);
    const { cards } = await health.during("publish", () => this.#publishing.takeRuns());
    return { caps, rows, cards, leftOut };
  }

  /** Starts the probes that clients have requested and that are due. Returns their number. */
  startAsks(): Promise<number> {
    return this.parts.askRunner.startDue();
  }

  /** Resolves when all started probes have ended. */
  waitUntilIdle(): Promise<void> {
    return this.parts.askRunner.waitUntilIdle();
  }

  /**
   * Writes the volatile tables (facts that change more often than cards) and the view, the file by which the
   * processes that answer clients find them.
   */
  async writeVolatile(): Promise<void> {
    await this.#owner.writeVolatile();
    await this.#publishing.nameTables();
  }

  /**
   * Deletes objects of the public store that nothing names any more.
   * @returns number of deleted objects
   */
  collectGarbage(): Promise<number> {
    return this.#publishing.collectGarbage();
  }

  /**
   * Writes the files of the charts on endpoints' pages, for buckets of endpoints that changed, and the view that
   * names them.
   * @returns number of files
   */
  async writeHistory(now: Date): Promise<number> {
    const filesWritten = await this.#owner.writeHistory(now);
    if (filesWritten > 0) await this.#publishing.nameTables();
    return filesWritten;
  }

  /**
   * Publishes the evidence files (all samples, by day) of every finished day that has none yet, and of records that
   * arrived late (docs/evidence.md).
   */
  publishEvidence(now: Date): Promise<EvidenceReport> {
    return closeDays(this.#owner, this.#publishing, now);
  }

  /**
   * Archives days that are more than 110 days old: writes and publishes their files and removes their rows from the
   * lake (docs/archive.md).
   */
  archiveOldDays(now: Date): Promise<ArchiveReport> {
    const { archive, clock, lake } = this.parts;
    const archivingParts = { ...archive, now: () => clock.now(), openPrinter: createPrinterOpener(lake) };
    return archiveDays({ owner: this.#owner, publishing: this.#publishing, archivingParts }, now);
  }

  /**
   * Removes from this lake the rows that are in published archive files, which another process made.
   * @param publishedArchive the archive files that the public log names
   * @returns number of removed rows
   */
  async evictArchived(publishedArchive: ArchiveFold): Promise<number> {
    await this.parts.ingest.pass();
    return followArchive(this.parts.lake, publishedArchive);
  }

  /**
   * Stores the budget of today for `touchstone budget`, which cannot read the lake while this process has it open.
   * @param published the published cards, if another process publishes (default: those of this process's publisher)
   */
  async storeBudget(published?: BudgetParts["published"]): Promise<void> {
    const { lake, memory, privateStore, caps, publisher, clock } = this.parts;
    const parts = { lake, memory, privateStore, caps, published: published ?? publisher.fold, now: clock.now() };
    await storeReport(privateStore, await createBudgetReport(parts, dayOf(parts.now), MAX_BUDGET_ENDPOINTS));
  }

  /** Builds and publishes the market index. */
  publishIndex(): Promise<void> {
    return this.#publishing.buildIndex();
  }
}
