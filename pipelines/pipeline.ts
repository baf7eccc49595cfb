import type { Lake } from "../infra/lake/duckdb.ts";
import { sql } from "../infra/lake/sql.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { Observer, SpanReport } from "./1-observe/observer.ts";
import { planDay, reservedFor } from "./1-observe/plan.ts";
import type { Caps } from "./1-observe/spend.ts";
import { changedBuckets, historyOf } from "./2-ingest/history.ts";
import type { Ingest } from "./2-ingest/ingest.ts";
import { PARAMS_SHA256 } from "./3-grade/params.ts";
import type { ArchiveFold } from "./4-publish/archive-fold.ts";
import { openCommitments } from "./4-publish/commitments.ts";
import { Moments } from "./4-publish/moments.ts";
import type { Publisher } from "./4-publish/publisher.ts";
import { writeRun } from "./4-publish/runs.ts";
import { type ArchivePlace, type ArchiveReport, makeArchive } from "./5-archive/archive.ts";
import { type EvidenceReport, makeEvidence } from "./5-archive/evidence.ts";
import { keepKin } from "./5-archive/kin-tables.ts";
import { settle } from "./5-archive/settle.ts";
import { type AskLine, demandBefore } from "./asks.ts";
import { type BudgetParts, budgetReport, keepReport } from "./budget/report.ts";
import { correctionsBelow } from "./corrections/drafts.ts";
import { LiveTables } from "./live-tables.ts";
import { gradeLake } from "./owners/grading.ts";
import { knownPlan, planKey, publishPlan } from "./plan-leaf.ts";
import type { RunLine } from "./record/card.ts";
import { encodeHistory } from "./record/history-arrow.ts";
import type { Memory } from "./record/memory.ts";
import type { DayPlan } from "./record/plan.ts";
import { addDays, dayOf, dayStart, rfc3339 } from "./record/time.ts";
import { saltHash, saltOf } from "./salts.ts";

/** What the jobs are made of, opened by the front door. */
export interface PipelineParts {
  now: () => Date;
  logId: string;
  privateStore: Store;
  lake: Lake;
  memory: Memory;
  ingest: Ingest;
  observer: Observer;
  publisher: Publisher;
  askLine: AskLine;
  caps: Caps;
  /** The operator's word on who is paid first: host or capability id -> a whole number. */
  priority?: Readonly<Record<string, number>>;
  /** Partitions of the event log. */
  partitions: number;
  logger: Logger;
  metrics?: Metrics;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins: readonly string[];
  archive: ArchivePlace;
}

export interface GradeReport {
  /** Endpoints and rows that were read, cards that were signed. */
  caps: number;
  rows: number;
  cards: number;
}

/** Endpoints whose next letter is computed for the kept report: some seconds of work, every ten minutes. */
const BUDGET_ENDPOINTS = 500;

/**
 * The jobs of the pipeline in the order of the flow, one call each. They may be called again after any failure: each
 * goes on from what is durable. No job runs twice at the same time; the caller sees to that (schedule.ts, lapse.ts).
 */
export class Pipeline {
  /** Moments at which cards change by time alone, from the runs of this process; before the first run nothing is known. */
  #dueAt: Moments | null = null;
  #live: LiveTables | null = null;

  constructor(private readonly parts: PipelineParts) {}

  /** Read catalogues, and the own listing of every seller in them; with `everybody`, of every seller that is known. */
  async intake(catalogues: readonly string[], everybody = false): Promise<void> {
    for (const catalogue of catalogues) await this.parts.observer.intakeCatalogue(catalogue);
    if (everybody) await this.parts.observer.refreshSellers();
    await this.parts.ingest.pass();
  }

  /** The plan of a day, drawn once and kept; its commitment is published before the day's first call. */
  async plan(day: string): Promise<DayPlan> {
    const { privateStore, publisher, now } = this.parts;
    const plan = await this.drawn(day);
    await publishPlan({ privateStore, publisher, now: now() }, plan);
    return plan;
  }

  /** The plan of a day, drawn by whoever comes first; its commitment is another's to publish. */
  async drawn(day: string): Promise<DayPlan> {
    return (await knownPlan(this.parts.privateStore, day)) ?? (await this.#drawPlan(day));
  }

  async #drawPlan(day: string): Promise<DayPlan> {
    const { privateStore, memory, lake, caps, priority, ownOrigins, now } = this.parts;
    const salt = await saltOf(privateStore, day);
    const [spent] = await lake.all<{ micro: bigint }>(sql("43_spent"));
    const spentBefore = (spent?.micro ?? 0n) + (await this.#promisedBefore(day));
    const demand = await demandBefore(lake, day);
    const listed = await memory.listed();
    const plan = planDay({
      day,
      salt,
      listed,
      caps,
      now: now(),
      spentBefore,
      ownOrigins,
      demand,
      ...(priority ? { priority } : {}),
    });
    if (plan.salt_hash !== saltHash(salt)) throw new Error(`the plan of ${day} is not of its salt`);
    const { result } = await privateStore.create(planKey(day), Buffer.from(JSON.stringify(plan)));
    return result === "created" ? plan : (await knownPlan(privateStore, day))!;
  }

  /** What the day before may still spend of its plan, when the next one is made before it is over. */
  async #promisedBefore(day: string): Promise<bigint> {
    const before = addDays(day, -1);
    if (this.parts.now() >= dayStart(day)) return 0n;
    const plan = await knownPlan(this.parts.privateStore, before);
    if (!plan) return 0n;
    const { byCap } = await this.parts.memory.spentOn(before);
    return plan.lines.reduce((sum, line) => {
      const left = reservedFor(line) - (byCap.get(line.cap) ?? 0n);
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
   * Ingest, publish what is listed, grade what is dirty or due, and publish the run. When it fails half-way the next
   * one looks at everything: what was dirty is forgotten by then, and the publisher sees what did not change.
   */
  async grade(now: Date): Promise<GradeReport> {
    try {
      return await this.#grade(now);
    } catch (error) {
      this.#dueAt = null;
      throw error;
    }
  }

  async #grade(now: Date): Promise<GradeReport> {
    const { ingest, lake, publisher, privateStore, logId } = this.parts;
    await ingest.pass();
    const due = await this.#due(now);
    const at = rfc3339(now);
    const { facts, run, thieves, positions } = await gradeLake(lake, now, due, {
      saysNothing: (moment, line) => publisher.saysNothing(moment, line),
      onLine: (line) => this.#remember(line),
    });
    await publisher.publishListings(facts.listed, facts.unlisted);
    const commitments = await openCommitments(lake, publisher.published, now);
    if (commitments.length > 0) await publisher.publishLeaves(commitments);
    if (!run) return { caps: 0, rows: 0, cards: 0 };
    this.parts.metrics?.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    this.parts.metrics?.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    this.parts.metrics?.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    await keepKin(privateStore, run.kinSha256, thieves);
    const header = {
      v: 1 as const,
      log: logId,
      now: rfc3339(now),
      params_sha256: PARAMS_SHA256,
      positions,
      kin_sha256: run.kinSha256,
      changed: run.lines.length,
    };
    await writeRun(privateStore, header, run.lines);
    const taken = await publisher.takeNewRuns(({ positions }) => correctionsBelow(lake, positions));
    // Endpoints whose kin changed are due at once.
    for (const cap of run.kinDue) this.#dueAt?.set(cap, at);
    // What a run said that was not taken is said by nobody else: nothing of it is dirty any more.
    if (taken.some((one) => !one.taken)) this.#dueAt = null;
    return { ...run.read, cards: taken.reduce((sum, one) => sum + one.cards, 0) };
  }

  /** When these cards change next by time alone. */
  #remember(line: Pick<RunLine, "cap" | "due_at">): void {
    this.#dueAt ??= new Moments();
    this.#dueAt.set(line.cap, line.due_at);
  }

  /** Endpoints that are due by time, or null for all of them: nothing is known before the first run. */
  async #due(now: Date): Promise<string[] | null> {
    if (this.#dueAt === null) return null;
    const at = rfc3339(now);
    const due = await this.parts.publisher.due(dayOf(now));
    return [...due, ...this.#dueAt.due(at)];
  }

  /** Begin to look at what was asked about and never seen; within a minute of the question in a running service. */
  asks(): Promise<number> {
    return this.parts.askLine.turn();
  }

  /** Resolves when the looks that were begun have ended. */
  idle(): Promise<void> {
    return this.parts.askLine.idle();
  }

  /** The volatile table and the view that serving follows. */
  async volatile(): Promise<void> {
    const { lake, publisher, ingest } = this.parts;
    // A correction counts from the moment it is in the log: it shows here before a run has found its consequence.
    await ingest.pass();
    // Before the rows: they may know more than the positions say, never less.
    const positions = await ingest.positions();
    this.#live ??= new LiveTables({
      ...{ lake, now: this.parts.now, tableOf: () => 0 },
      write: (table, bytes) => publisher.writeLive(table, bytes),
    });
    await this.#live.turn(publisher.published, [0]);
    await publisher.writeView({ live: this.#live.keysOf(0), positions });
    this.#live.named();
  }

  /** Delete what has had its time. @returns how many objects */
  sweep(): Promise<number> {
    return this.parts.publisher.sweep(this.#live?.keysOf(0));
  }

  /**
   * The charts' files of the buckets that changed since the last ones. @returns how many were written; none before the
   * first view, which is what names them.
   */
  async history(now: Date): Promise<number> {
    const { lake, publisher, ingest } = this.parts;
    const view = await publisher.view();
    if (!view) return 0;
    // Read before the rows: what is ingested meanwhile is found again the next time.
    const positions = await ingest.positions();
    const buckets = await changedBuckets(lake, view.history?.positions ?? null, positions);
    const files = { ...view.history?.files };
    let written = 0;
    for await (const { bucket, rows } of historyOf(lake, buckets, now)) {
      files[bucket] = await publisher.writeHistory(bucket, encodeHistory(rows));
      written++;
    }
    if (buckets.length > 0) await publisher.nameHistory({ files, positions });
    return written;
  }

  /** The evidence of every day that is closed and has none yet, and of what came late; docs/evidence.md. */
  evidence(now: Date): Promise<EvidenceReport> {
    return makeEvidence(this.parts, now);
  }

  /** Days older than 110 days, filed, published and taken out of the lake; docs/archive.md. */
  async archive(now: Date): Promise<ArchiveReport> {
    await this.parts.ingest.pass();
    return makeArchive({ ...this.parts, ...this.parts.archive }, now);
  }

  /**
   * Where another process files the archive: rows that its leaves say were moved leave this lake too, each file's only when
   * all of them are found. @param filed the archive of what is published @returns rows that left
   */
  async settle(filed: ArchiveFold): Promise<number> {
    const { ingest, lake, partitions, archive } = this.parts;
    await ingest.pass();
    return settle({ lake, publicStore: archive.publicStore, partitions }, filed);
  }

  /**
   * Keeps the budget of today for `touchstone budget`, which cannot read the lake beside us.
   * @param published what is published, where another process publishes (default: our publisher's)
   */
  async budget(published?: BudgetParts["published"]): Promise<void> {
    const { lake, memory, privateStore, caps, publisher, now } = this.parts;
    const parts = { lake, memory, privateStore, caps, published: published ?? publisher.published, now: now() };
    await keepReport(privateStore, await budgetReport(parts, dayOf(parts.now), BUDGET_ENDPOINTS));
  }

  /** The market index of what is published now. */
  index(): Promise<void> {
    return this.parts.publisher.buildIndex();
  }
}
