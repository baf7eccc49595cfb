import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Ingest } from "../2-ingest/ingest.ts";
import { INGESTED } from "../2-ingest/load.ts";
import { PARAMS_SHA256 } from "../3-grade/params.ts";
import type { Thief } from "../3-grade/related.ts";
import { RelatedParties } from "../3-grade/related.ts";
import { DueDays } from "../4-publish/due.ts";
import type { PublishedRecord } from "../4-publish/followed.ts";
import { listingDrafts, openCommitments, unknownDrafts } from "../4-publish/known.ts";
import { Moments } from "../4-publish/moments.ts";
import { type RunDrafts, writeRun } from "../4-publish/runs.ts";
import { saysNothingNew } from "../4-publish/take-lines.ts";
import { keepRelated } from "../5-archive/evidence.ts";
import { correctionsBelow } from "../corrections/endpoint-record.ts";
import { partitionOf } from "../record/ids.ts";
import { dayOf, rfc3339 } from "../record/time.ts";
import type { Positions } from "../record/volatile.ts";
import { archiveParts } from "./archive-parts.ts";
import { evidenceParts, makeOwnEvidence } from "./evidence.ts";
import { type Graded, gradeLake } from "./grading.ts";
import type { LiveTables } from "./live-tables.ts";
import { makeOwnArchive, type OwnArchive, type OwnArchiveReport } from "./own-archive.ts";
import { Payees, turnedBetween } from "./payees.ts";
import { Refusals } from "./refusals.ts";
import { openOwnLive, Tables, writeOwnHistory, writeOwnVolatile } from "./tables.ts";

export interface OwnerParts {
  ownership: Pick<Ownership, "held" | "onChange">;
  log: Pick<Log, "id" | "partitions">;
  privateStore: Store;
  /** Volatile tables, charts and evidence files of our partitions go there; whoever names them is another. */
  publicStore: Store;
  clock: Clock;
  /** Holds the partitions that are this process' and no other. */
  lake: Lake;
  ingest: Ingest;
  followed: PublishedRecord;
  logger: Logger;
  metrics: Metrics;
  /**
   * Called between writing what our partitions add to the table of payees and reading the others' (default: nothing is
   * waited for). Whoever compares runs waits here until all owners have written theirs.
   */
  allWritten?: (now: Date, held: readonly number[]) => Promise<void>;
}

export interface OwnerReport {
  held: readonly number[];
  /** Endpoints and rows that were read, and the lines of the run that was written. */
  caps: number;
  rows: number;
  lines: number;
  /** Endpoints whose line says nothing new: it stays out of the run. */
  leftOut: number;
  /** Number of the run, null when there was nothing to say. */
  run: number | null;
}

/** Partitions were revoked while they were worked on; what was begun is dropped, and the next turn goes on. */
export class PartitionsRevoked extends Failure {
  constructor() {
    super("busy", "partitions were revoked meanwhile");
  }
}

/**
 * The owner's half of the pipeline: ingest and grade of the partitions that this process was given. It publishes nothing
 * and holds no key: runs are private objects, which the publisher takes.
 */
export class Owner {
  readonly payees: Payees;
  /** Moments at which cards change by time alone, from the runs of this process; before the first run nothing is known. */
  #dueAt: Moments | null = null;
  /** The table that the last run's flags were made from. */
  #table: readonly Thief[] | null = null;
  /** Endpoint -> UTC day and moment of the newest line of it in a run, until it was looked at again. */
  readonly #lines = new Map<string, { day: string; at: string }>();

  /** Days on which cards of the published record change by time alone. */
  #days: DueDays | null = null;
  readonly #refusals: Refusals;
  readonly #evidence: ReturnType<typeof evidenceParts>;
  readonly #archive: ReturnType<typeof archiveParts>;
  readonly #files: OwnerParts & { tables: Tables };
  readonly #live: LiveTables;

  constructor(private readonly parts: OwnerParts) {
    const { privateStore, log } = parts;
    this.payees = new Payees(privateStore, log.id, log.partitions);
    this.#refusals = new Refusals(privateStore);
    this.#evidence = evidenceParts(privateStore, log);
    this.#archive = archiveParts(privateStore, log);
    this.#files = { ...parts, tables: new Tables(privateStore, log) };
    this.#live = openOwnLive(this.#files);
  }

  /** Partitions held now; the lake is brought to them. */
  async #take(): Promise<readonly number[]> {
    const held = this.parts.ownership.held();
    await this.parts.ingest.hold(held);
    return held;
  }

  /**
   * For whoever reads in several statements: our partitions, loaded, and what refuses to tell of them once one was revoked.
   * It looks back to before they were loaded: a revocation that waits for the load to end comes right behind it.
   */
  async #loaded(): Promise<{ held: readonly number[]; refuseRevoked: () => void }> {
    const held = await this.#take();
    const refuseRevoked = this.#refusesRevoked(held);
    await this.parts.ingest.pass();
    return { held, refuseRevoked };
  }

  /** Everything that the log holds of our partitions, into segments and lake. */
  async ingest(): Promise<{ held: readonly number[]; rows: number; positions: Positions }> {
    const held = await this.#take();
    const passed = await this.parts.ingest.pass();
    return { held, ...passed };
  }

  /**
   * Grade what is dirty or due in our partitions at this moment, and write a run when there is something to say.
   * @throws PartitionsRevoked, Outrun, PartBehind, and what lake, log and stores throw; the next call looks at everything then
   */
  async grade(now: Date): Promise<OwnerReport> {
    try {
      return await this.#grade(now);
    } catch (error) {
      this.#dueAt = null;
      throw error;
    }
  }

  async #grade(now: Date): Promise<OwnerReport> {
    const { lake, followed, metrics, log } = this.parts;
    const { held, refuseRevoked } = await this.#loaded();
    if (held.length === 0) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: null };
    await followed.current();
    await this.#hearRefusals(now);
    await this.payees.look(held);
    const due = this.#due(now, new Set(held));
    const before = this.#table;
    const holdsAll = held.length === log.partitions;
    const exchange = (own: readonly Thief[], positions: Positions) => this.#exchange(own, positions, held, now);
    const graded = await gradeLake(lake, now, due, {
      saysNothing: (at, line) => saysNothingNew(followed.fold.caps.get(line.cap), at, line),
      onLine: ({ cap, due_at }) => {
        this.#dueAt ??= new Moments();
        this.#dueAt.set(cap, due_at);
      },
      holdsAll,
      exchange,
    });
    const { run } = graded;
    // Without a run others may have written something all the same. Who holds all writes for owners that come later.
    this.#table = run && !holdsAll ? graded.thieves : await exchange(graded.thieves, graded.positions);
    const number = await this.#write(now, graded, refuseRevoked);
    await this.#relatedDue(before, run?.relatedDue ?? [], rfc3339(now));
    if (!run) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: number };
    // Most turns find nothing to say.
    const told = { run: number, endpoints: run.read.caps, rows: run.read.rows, lines: run.lines.length };
    if (number !== null) this.parts.logger.info(told, "endpoints were graded");
    metrics.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    metrics.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    metrics.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    return { held, ...run.read, lines: run.lines.length, run: number };
  }

  /**
   * Volatile tables of our partitions, for the publisher to name. @returns partitions whose table changed
   * @throws PartitionsRevoked, Outrun
   */
  async volatile(): Promise<number> {
    const { held, refuseRevoked } = await this.#loaded();
    return held.length > 0 ? writeOwnVolatile(this.#files, this.#live, held, refuseRevoked) : 0;
  }

  /** The charts' files of our buckets that changed. @returns files that were written */
  async history(now: Date): Promise<number> {
    const held = await this.#take();
    return held.length > 0 ? writeOwnHistory(this.#files, held, now, this.#refusesRevoked(held)) : 0;
  }

  /** Evidence files of our buckets, of days that are closed. @returns files that were made */
  async evidence(now: Date): Promise<number> {
    const { held, refuseRevoked } = await this.#loaded();
    if (held.length === 0) return 0;
    const parts = { ...this.#files, objects: this.#evidence, refuseRevoked };
    return makeOwnEvidence(parts, held, now);
  }

  /**
   * The archive of days that came of age: rows that are filed leave the lake, further ones are written down for the publisher.
   * @throws what {@link makeOwnArchive} names
   */
  async archive(now: Date, more: Pick<OwnArchive, "onStep"> = {}): Promise<OwnArchiveReport> {
    const { held, refuseRevoked } = await this.#loaded();
    const parts = { ...this.parts, objects: this.#archive, refuseRevoked, ...more };
    return held.length > 0 ? makeOwnArchive(parts, held, now) : { removed: 0, rows: 0 };
  }

  /** Small segments of our chains become one, and what nothing needs is deleted. */
  async tidy(): Promise<void> {
    if ((await this.#take()).length > 0) await this.parts.ingest.tidy();
  }

  /**
   * The second pass: what ours add, and then the table of all partitions.
   * @param own thieves and positions of one moment of the lake
   * @throws PartitionsRevoked, Outrun, PartBehind
   */
  async #exchange(
    own: readonly Thief[],
    positions: Positions,
    held: readonly number[],
    now: Date,
  ): Promise<readonly Thief[]> {
    this.#refuseRevoked(held);
    // Lost and given to us again since: the rows have left the lake, and nothing was loaded after that.
    if (!held.every((partition) => INGESTED.every((topic) => positions[topic]?.[String(partition)] !== undefined)))
      throw new PartitionsRevoked();
    await this.payees.write(own, positions, held, rfc3339(now));
    await this.parts.allWritten?.(now, held);
    return this.payees.table();
  }

  /**
   * The run as a private object. Nothing is written where nothing would be published. Corrections and commitments are read
   * after the look: where rows left the lake in between they would be missing in a run whose positions lie past them.
   */
  async #write(
    now: Date,
    { facts, run, positions, thieves }: Graded,
    refuseRevoked: () => void,
  ): Promise<number | null> {
    const { privateStore, log, lake, followed } = this.parts;
    const corrections = await correctionsBelow(lake, positions);
    const commitments = await openCommitments(lake, followed.fold, now);
    const drafts = [...listingDrafts(facts.listed, facts.unlisted), ...corrections, ...commitments];
    const extra = unknownDrafts(followed.fold, drafts) as RunDrafts;
    const lines = run?.lines ?? [];
    if (lines.length + extra.length === 0) return null;
    const table = run ? thieves : this.#table!;
    const { sha256: kin_sha256 } = new RelatedParties(table);
    await keepRelated(privateStore, kin_sha256, table);
    refuseRevoked();
    const at = rfc3339(now);
    const header = { v: 1 as const, log: log.id, now: at, params_sha256: PARAMS_SHA256, positions, kin_sha256 };
    const n = await writeRun(privateStore, { ...header, changed: lines.length }, lines, -1, extra);
    this.#refusals.wrote(n);
    for (const { cap } of lines) this.#lines.set(cap, { day: dayOf(now), at });
    return n;
  }

  /** A run of ours that the publisher did not take: what stood in it is lost, and everything is looked at again. */
  async #hearRefusals(now: Date): Promise<void> {
    const { logger, metrics } = this.parts;
    for (const { run, reason } of await this.#refusals.look(now)) {
      logger.error({ run, reason }, "a run of this owner was not taken; everything is graded anew");
      metrics.count("touchstone_owner_runs_refused_total");
    }
    if (this.#refusals.anew(now)) this.#dueAt = null;
  }

  /** Endpoints of ours whose payee or domain took money or took none any more: due in the next run. */
  async #relatedDue(before: readonly Thief[] | null, found: readonly string[], at: string): Promise<void> {
    const turned = before ? turnedBetween(before, this.#table ?? []) : [];
    const related = turned.length
      ? await this.parts.lake.all<{ cap: string }>(sql("grade/related:turned"), { turned: JSON.stringify(turned) })
      : [];
    for (const cap of [...found, ...related.map((one) => one.cap)]) this.#dueAt?.set(cap, at);
  }

  /** Endpoints that are due by time, or null for all of them. */
  #due(now: Date, held: ReadonlySet<number>): string[] | null {
    const { followed, log } = this.parts;
    const today = dayOf(now);
    const waited = this.#unpublished(today);
    if (this.#dueAt === null) return null;
    this.#days ??= new DueDays(followed.fold);
    const due = [...this.#days.due(today), ...this.#dueAt.due(rfc3339(now)), ...waited];
    return due.filter((cap) => held.has(partitionOf(cap, log.partitions)));
  }

  /** What stood in a run of an earlier day and is not in the tree: it had to wait for its day, or the run was not taken. */
  #unpublished(today: string): string[] {
    const waited: string[] = [];
    for (const [cap, { day, at }] of this.#lines) {
      if (day >= today) continue;
      this.#lines.delete(cap);
      if ((this.parts.followed.fold.caps.get(cap)?.computedAt ?? "") < at) waited.push(cap);
    }
    return waited;
  }

  /**
   * From now on: throws when what was read of these partitions may lack rows, because they left the lake meanwhile (they
   * may be here again by then), or when another process says what they hold.
   */
  #refusesRevoked(held: readonly number[]): () => void {
    const { ingest } = this.parts;
    const before = ingest.revocations;
    return () => {
      if (ingest.revocations !== before) throw new PartitionsRevoked();
      this.#refuseRevoked(held);
    };
  }

  #refuseRevoked(held: readonly number[]): void {
    const now = new Set(this.parts.ownership.held());
    if (!held.every((partition) => now.has(partition))) throw new PartitionsRevoked();
  }
}
