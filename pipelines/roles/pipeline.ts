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
import { NotRecorded, type Observer, type SpanReport } from "../1-observe/observer.ts";
import { drawPlanYielding, reservedMicro } from "../1-observe/plan/plan.ts";
import type { Caps } from "../1-observe/plan/spend.ts";
import type { Ingest } from "../2-ingest/ingest.ts";
import { planKey, publishPlan, readPlan, saltHash, saltOf } from "../4-publish/day-plan.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import type { EvidenceReport } from "../5-archive/evidence.ts";
import { followArchive } from "../5-archive/follow.ts";
import type { ArchivePlace } from "../5-archive/place.ts";
import { type BudgetParts, budgetReport, storeReport } from "../budget/report.ts";
import type { ArchiveFold } from "../published/fold.ts";
import type { Memory } from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import { type DayPlan, summarizePlan } from "../record/plan.ts";
import { addDays, dayOf, dayStart } from "../record/time.ts";
import { type ArchiveReport, archiveDays, closeDays, createPrinter } from "./days.ts";
import { Owner } from "./protocol/owner.ts";
import { Publishing } from "./protocol/publishing.ts";

/** Receives the result of each piece of a role's work, for the role's health report. */
export interface HealthReporter {
  /** @param of name of the work that this is a part of (default: `name`) */
  during<T>(name: string, run: () => Promise<T>, of?: string): Promise<T>;
  done(name: string): void;
  failed(name: string, error: unknown, of?: string): void;
}

/** The parts of one machine, as its command opens them. */
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
  /** The operator's priorities, which decide who is paid first: host or capability id -> a whole number. */
  priority: Readonly<Record<string, number>>;
  /** Hosts that are never paid. */
  exclude?: readonly string[];
  logger: Logger;
  metrics: Metrics;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins: readonly string[];
  archive: ArchivePlace & { rowsAFile?: number };
}

export interface GradeReport {
  /** Number of endpoints and rows that were read, and of cards that were signed. */
  caps: number;
  rows: number;
  cards: number;
  /** Number of endpoints whose line would change nothing that is published; these lines are left out of the run. */
  leftOut: number;
}

const UNWATCHED: Pick<HealthReporter, "during"> = { during: (_, run) => run() };

const CATALOGUES_AT_ONCE = 4;

/** Number of endpoints whose next letter is computed for the stored report: some seconds of work every ten minutes. */
const BUDGET_ENDPOINTS = 500;

/**
 * All roles of the pipeline in one process: an observer, the owner of all partitions, and the publisher that takes the
 * owner's runs, as they would work on several machines. Each job is one method; the methods are in the order of the
 * data flow. A method may be called again after any failure, since it continues from what is durable. The caller makes
 * sure that no job runs twice at the same time (schedule.ts, simulated-past.ts).
 */
export class Pipeline {
  readonly #owner: Owner;
  readonly #publishing: Publishing;

  constructor(private readonly parts: PipelineParts) {
    const { log, publisher } = parts;
    const all = Array.from({ length: log.partitions }, (_, partition) => partition);
    this.#owner = new Owner({ ...parts, ownership: fixedPartitions(all), followed: publisher });
    this.#publishing = new Publishing(parts);
  }

  /**
   * Reads catalogues, and the own listing of every seller in them; with `everybody`, of every seller that is known.
   * Several catalogues are read at once, so that a slow one does not delay the others; in simulated time they are read
   * one after the other, in a fixed order.
   */
  async intake(catalogues: readonly NamedCatalogue[], everybody = false): Promise<void> {
    const { observer, logger, metrics, clock } = this.parts;
    await forEachConcurrent(catalogues, clock.jumps ? 1 : CATALOGUES_AT_ONCE, async (named) => {
      try {
        await observer.intakeCatalogue(named);
      } catch (error) {
        // An error of one catalogue does not end the intake of the others; an error of the log ends all.
        if (error instanceof NotRecorded) throw error;
        metrics?.count("touchstone_observe_listings_total", { result: "broken" });
        logger.error({ err: error, catalogue: toCatalogue(named).url }, "a catalogue could not be taken in");
      }
    });
    if (everybody) await observer.refreshSellers();
    await this.parts.ingest.pass();
  }

  /**
   * Continues reading the catalogues whose reading was interrupted, once the time for a retry has come.
   * @returns how many
   */
  async resumeIntake(catalogues: readonly NamedCatalogue[]): Promise<number> {
    const cut = this.parts.observer.unfinishedCatalogues(catalogues);
    if (cut.length > 0) await this.intake(cut);
    return cut.length;
  }

  /** Does the lake have a listing? */
  async knowsListings(): Promise<boolean> {
    return (await this.parts.memory.listed()).length > 0;
  }

  /**
   * Returns the plan of a day, which is drawn once and stored, and publishes its commitment before the day's first
   * call.
   */
  async plan(day: string): Promise<DayPlan> {
    const { privateStore, publisher, clock } = this.parts;
    const plan = await this.drawPlan(day);
    await publishPlan({ privateStore, publisher, now: clock.now() }, plan);
    return plan;
  }

  /** Returns the plan of a day without publishing its commitment. The first process that needs the plan draws it. */
  async drawPlan(day: string): Promise<DayPlan> {
    return (await readPlan(this.parts.privateStore, day)) ?? (await this.#drawPlan(day));
  }

  async #drawPlan(day: string): Promise<DayPlan> {
    const { privateStore, memory, lake, caps, priority, exclude = [], ownOrigins, clock } = this.parts;
    const salt = await saltOf(privateStore, day);
    const [spent] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
    const spentBefore = (spent?.micro ?? 0n) + (await this.#promisedBefore(day));
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
    const money = Object.fromEntries(Object.entries(limits).map(([name, micro]) => [name, formatMoney(micro)]));
    const spent_before = formatMoney(spentBefore);
    this.parts.logger.info({ ...summarizePlan(plan), limits: money, spent_before }, "the plan of a day was drawn");
    return plan;
  }

  /** What the plan of the previous day may still spend, for a plan that is made before that day is over. */
  async #promisedBefore(day: string): Promise<bigint> {
    const before = addDays(day, -1);
    if (this.parts.clock.now() >= dayStart(day)) return 0n;
    const plan = await readPlan(this.parts.privateStore, before);
    if (!plan) return 0n;
    const byCap = new Map<string, bigint>();
    for (const { cap, micro } of await this.parts.memory.spentOn(before))
      byCap.set(cap, (byCap.get(cap) ?? 0n) + micro);
    return plan.lines.reduce((sum, line) => {
      const left = reservedMicro(line) - (byCap.get(line.cap) ?? 0n);
      return left > 0n ? sum + left : sum;
    }, 0n);
  }

  /** Makes every call of the plan in this time span that is not in the record yet. */
  async observe(plan: DayPlan, from: Date, to: Date): Promise<SpanReport> {
    const report = await this.parts.observer.observeSpan(plan, from, to);
    await this.parts.observer.awaitSettlements();
    return report;
  }

  /** Writes all new records of the log into segments and lake. */
  async ingest(): Promise<void> {
    await this.parts.ingest.pass();
  }

  /** Joins small segments of the commit chains, and deletes objects that nothing needs any more. */
  async tidy(): Promise<void> {
    await this.parts.ingest.tidy();
  }

  /**
   * Ingests, grades the endpoints that are dirty or due into a run, and publishes all runs that wait. After a failure
   * the next call checks all endpoints.
   */
  async grade(now: Date, watch: Pick<HealthReporter, "during"> = UNWATCHED): Promise<GradeReport> {
    // Reported separately, so that the health report shows which one fails; the grade finds nothing left to ingest.
    if (watch !== UNWATCHED) await watch.during("ingest", () => this.ingest());
    const { caps, rows, leftOut } = await this.#owner.grade(now);
    const { cards } = await watch.during("publish", () => this.#publishing.runs());
    return { caps, rows, cards, leftOut };
  }

  /**
   * Starts the probes of urls that clients asked about and that are not in the record. A running service calls this
   * every minute.
   * @returns how many were started
   */
  asks(): Promise<number> {
    return this.parts.askRunner.startDue();
  }

  /** Resolves when the probes that were started have ended. */
  idle(): Promise<void> {
    return this.parts.askRunner.waitUntilIdle();
  }

  /** Writes the volatile tables, and the view that serving follows. */
  async volatile(): Promise<void> {
    await this.#owner.volatile();
    await this.#publishing.tables();
  }

  /** Deletes public objects that no view or leaf names any more. @returns how many */
  collectGarbage(): Promise<number> {
    return this.#publishing.collectGarbage();
  }

  /** Writes the chart files of the buckets that changed, and names them in the view. @returns how many files */
  async history(now: Date): Promise<number> {
    const written = await this.#owner.history(now);
    if (written > 0) await this.#publishing.tables();
    return written;
  }

  /**
   * Makes and publishes the evidence of closed days, and of records that arrived later for a closed day
   * (docs/evidence.md).
   */
  evidence(now: Date): Promise<EvidenceReport> {
    return closeDays(this.#owner, this.#publishing, now);
  }

  /** Files days older than 110 days, publishes the files and deletes their rows from the lake (docs/archive.md). */
  archive(now: Date): Promise<ArchiveReport> {
    const { archive, clock, lake } = this.parts;
    const filing = { ...archive, now: () => clock.now(), scratch: createPrinter(lake) };
    return archiveDays({ owner: this.#owner, publishing: this.#publishing, filing }, now);
  }

  /**
   * Deletes from this lake the rows that archive leaves name, where another process files the archive.
   * @param filed the archive of what is published
   * @returns number of rows deleted
   */
  async evictArchived(filed: ArchiveFold): Promise<number> {
    await this.parts.ingest.pass();
    return followArchive(this.parts.lake, filed);
  }

  /**
   * Stores today's budget report for `touchstone budget`, which cannot open the lake of a running service.
   * @param published what is published, where another process publishes (default: our publisher's)
   */
  async budget(published?: BudgetParts["published"]): Promise<void> {
    const { lake, memory, privateStore, caps, publisher, clock } = this.parts;
    const parts = { lake, memory, privateStore, caps, published: published ?? publisher.fold, now: clock.now() };
    await storeReport(privateStore, await budgetReport(parts, dayOf(parts.now), BUDGET_ENDPOINTS));
  }

  /** Writes the market index of what is published now. */
  index(): Promise<void> {
    return this.#publishing.index();
  }
}
