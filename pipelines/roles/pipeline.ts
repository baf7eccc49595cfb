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
  /** @param of the work that it is a part of (default: one of its own name) */
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
  /** The operator's priorities, who is paid first: host or capability id -> a whole number. */
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
  /** Endpoints and rows that were read, cards that were signed. */
  caps: number;
  rows: number;
  cards: number;
  /** Endpoints whose line says nothing new: it stays out of the run. */
  leftOut: number;
}

const UNWATCHED: Pick<HealthReporter, "during"> = { during: (_, run) => run() };

const CATALOGUES_AT_ONCE = 4;

/** Endpoints whose next letter is computed for the kept report: some seconds of work, every ten minutes. */
const BUDGET_ENDPOINTS = 500;

/**
 * All roles of the pipeline in one process: an observer, the owner of every partition, and the publisher that takes
 * what the owner says, as they would work beside each other on several machines. One call a job, in the order of the
 * flow; each may be called again after any failure, since it goes on from what is durable. No job runs twice at the
 * same time; the caller sees to that (schedule.ts, simulated-past.ts).
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
   * Read catalogues, and the own listing of every seller in them; with `everybody`, of every seller that is known. Several
   * at once, so that one that keeps us waiting holds up no other; in simulated time nobody waits, and their order is kept.
   */
  async intake(catalogues: readonly NamedCatalogue[], everybody = false): Promise<void> {
    const { observer, logger, metrics, clock } = this.parts;
    await forEachConcurrent(catalogues, clock.jumps ? 1 : CATALOGUES_AT_ONCE, async (named) => {
      try {
        await observer.intakeCatalogue(named);
      } catch (error) {
        // One catalogue ends no other's intake. Where nothing can be written, all have ended.
        if (error instanceof NotRecorded) throw error;
        metrics?.count("touchstone_observe_listings_total", { result: "broken" });
        logger.error({ err: error, catalogue: toCatalogue(named).url }, "a catalogue could not be taken in");
      }
    });
    if (everybody) await observer.refreshSellers();
    await this.parts.ingest.pass();
  }

  /** Go on with the catalogues whose reading broke off, once they may be asked again. @returns how many */
  async resumeIntake(catalogues: readonly NamedCatalogue[]): Promise<number> {
    const cut = this.parts.observer.unfinishedCatalogues(catalogues);
    if (cut.length > 0) await this.intake(cut);
    return cut.length;
  }

  /** Is anything listed in what was ingested? */
  async knowsListings(): Promise<boolean> {
    return (await this.parts.memory.listed()).length > 0;
  }

  /** The plan of a day, drawn once and kept; its commitment is published before the day's first call. */
  async plan(day: string): Promise<DayPlan> {
    const { privateStore, publisher, clock } = this.parts;
    const plan = await this.drawn(day);
    await publishPlan({ privateStore, publisher, now: clock.now() }, plan);
    return plan;
  }

  /** The plan of a day. The first process that needs it draws it; the publisher publishes its commitment. */
  async drawn(day: string): Promise<DayPlan> {
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

  /** What the day before may still spend of its plan, when the next one is made before it is over. */
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

  /** Every call of the plan that falls into the span and is not in the record. */
  async observe(plan: DayPlan, from: Date, to: Date): Promise<SpanReport> {
    const report = await this.parts.observer.observeSpan(plan, from, to);
    await this.parts.observer.awaitSettlements();
    return report;
  }

  /** Everything that the log holds, into segments and lake. */
  async ingest(): Promise<void> {
    await this.parts.ingest.pass();
  }

  /** Join small segments of the commit chains, and delete what nothing needs any more. */
  async tidy(): Promise<void> {
    await this.parts.ingest.tidy();
  }

  /**
   * Ingest, grade what is dirty or due into a run, and take every run that waits into the tree. When it fails half-way the
   * next one looks at everything.
   */
  async grade(now: Date, watch: Pick<HealthReporter, "during"> = UNWATCHED): Promise<GradeReport> {
    // Each by itself, so that health tells which of them fails; the grade finds nothing left to ingest.
    if (watch !== UNWATCHED) await watch.during("ingest", () => this.ingest());
    const { caps, rows, leftOut } = await this.#owner.grade(now);
    const { cards } = await watch.during("publish", () => this.#publishing.runs());
    return { caps, rows, cards, leftOut };
  }

  /** Begin to look at what was asked about and never seen; within a minute of the question in a running service. */
  asks(): Promise<number> {
    return this.parts.askRunner.startDue();
  }

  /** Resolves when the looks that were begun have ended. */
  idle(): Promise<void> {
    return this.parts.askRunner.waitUntilIdle();
  }

  /** The volatile tables and the view that serving follows. */
  async volatile(): Promise<void> {
    await this.#owner.volatile();
    await this.#publishing.tables();
  }

  /** Delete objects that nobody names any more. @returns how many */
  collectGarbage(): Promise<number> {
    return this.#publishing.collectGarbage();
  }

  /** The charts' files of the buckets that changed since the last ones, and the view that names them. @returns how many */
  async history(now: Date): Promise<number> {
    const written = await this.#owner.history(now);
    if (written > 0) await this.#publishing.tables();
    return written;
  }

  /** The evidence of every day that is closed and has none yet, and of what came late; docs/evidence.md. */
  evidence(now: Date): Promise<EvidenceReport> {
    return closeDays(this.#owner, this.#publishing, now);
  }

  /** Days older than 110 days, filed, published and taken out of the lake; docs/archive.md. */
  archive(now: Date): Promise<ArchiveReport> {
    const { archive, clock, lake } = this.parts;
    const filing = { ...archive, now: () => clock.now(), scratch: createPrinter(lake) };
    return archiveDays({ owner: this.#owner, publishing: this.#publishing, filing }, now);
  }

  /**
   * Where another process files the archive: rows that its leaves say were moved leave this lake too.
   * @param filed the archive of what is published @returns rows that left
   */
  async evictArchived(filed: ArchiveFold): Promise<number> {
    await this.parts.ingest.pass();
    return followArchive(this.parts.lake, filed);
  }

  /**
   * Keeps the budget of today for `touchstone budget`, which cannot read the lake beside us.
   * @param published what is published, where another process publishes (default: our publisher's)
   */
  async budget(published?: BudgetParts["published"]): Promise<void> {
    const { lake, memory, privateStore, caps, publisher, clock } = this.parts;
    const parts = { lake, memory, privateStore, caps, published: published ?? publisher.fold, now: clock.now() };
    await storeReport(privateStore, await budgetReport(parts, dayOf(parts.now), BUDGET_ENDPOINTS));
  }

  /** The market index of what is published now. */
  index(): Promise<void> {
    return this.#publishing.index();
  }
}
