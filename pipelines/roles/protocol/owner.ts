import type { Clock } from "../../../infra/clock.ts";
import { Failure } from "../../../infra/errors.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Ownership } from "../../../infra/log/ownership.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { Logger, Metrics } from "../../../infra/telemetry.ts";
import type { Ingest } from "../../2-ingest/ingest.ts";
import { PARAMS_SHA256 } from "../../3-grade/params.ts";
import type { NonDeliveringSeller } from "../../3-grade/related.ts";
import { DueDays } from "../../4-publish/due.ts";
import type { PublishedRecord } from "../../4-publish/followed.ts";
import {
  listingDrafts,
  newDraftsOf,
  relatedPartyDrafts,
  unpublishedCommitments,
  unpublishedReceipts,
} from "../../4-publish/known.ts";
import { MomentIndex } from "../../4-publish/moments.ts";
import { type PackedLines, RUN_LINES, type RunDrafts, writeRun } from "../../4-publish/runs.ts";
import { changesNothing } from "../../4-publish/take-lines.ts";
import { readCorrectionsBelow } from "../../corrections/endpoint-record.ts";
import { partitionOf } from "../../record/ids.ts";
import { dayOf, rfc3339 } from "../../record/time.ts";
import type { Positions } from "../../record/volatile.ts";
import { openArchiveParts } from "./archive-parts.ts";
import { makeOwnEvidence, openEvidenceParts } from "./evidence.ts";
import { type GradeResult, gradeLake } from "./grading.ts";
import type { LiveTables } from "./live-tables.ts";
import { makeOwnArchive, type OwnArchive, type OwnArchiveReport } from "./own-archive.ts";
import { Refusals } from "./refusals.ts";
import { openOwnLive, PartitionTables, writeOwnHistory, writeOwnVolatile } from "./tables.ts";

export interface OwnerParts {
  ownership: Pick<Ownership, "held" | "onChange">;
  log: Pick<Log, "id" | "partitions">;
  privateStore: Store;
  /**
   * The store to which this owner writes volatile tables, charts and evidence files of its partitions. The publisher
   * names these files.
   */
  publicStore: Store;
  clock: Clock;
  /** Holds the partitions that are assigned to this process, and no others. */
  lake: Lake;
  ingest: Ingest;
  followed: PublishedRecord;
  logger: Logger;
  metrics: Metrics;
  /** Most lines with cards of one run object (default {@link RUN_LINES}). */
  runLines?: number;
}

export interface OwnerReport {
  held: readonly number[];
  /** Number of endpoints that were read. */
  caps: number;
  /** Number of rows that were read. */
  rows: number;
  /** Number of lines of the run that was written. */
  lines: number;
  /** Number of endpoints that are not in the run, because nothing of their published card would change. */
  leftOut: number;
  /** Number of the run, of its last object where there are several; null when none was written. */
  run: number | null;
}

/**
 * The error for partitions that were assigned to another process while this process worked on them. Unfinished work is
 * dropped, and the next call continues.
 */
export class PartitionsRevoked extends Failure {
  constructor() {
    super("busy", "partitions were revoked meanwhile");
  }
}

const rowKey = ({ cap, pay_to, domain }: NonDeliveringSeller): string => JSON.stringify([cap, pay_to, domain]);

/** Returns the rows in which two tables of related parties differ. */
function changedRows(
  before: readonly NonDeliveringSeller[],
  after: readonly NonDeliveringSeller[],
): NonDeliveringSeller[] {
  const [had, has] = [new Set(before.map(rowKey)), new Set(after.map(rowKey))];
  return [...before.filter((thief) => !has.has(rowKey(thief))), ...after.filter((thief) => !had.has(rowKey(thief)))];
}

/**
 * Divides the lines and drafts of a run among its objects. An object has packed lines, the drafts about their endpoints (a
 * correction is published with the cards that it changes), and at most `maxDrafts` of the other drafts.
 */
function runObjects(
  packed: readonly PackedLines[],
  drafts: RunDrafts,
  most: number,
): { lines: PackedLines | null; drafts: RunDrafts }[] {
  const objectOf = new Map(packed.flatMap(({ caps }, i) => caps.map((cap) => [cap, i] as const)));
  const own: RunDrafts[number][][] = packed.map(() => []);
  const rest: RunDrafts[number][] = [];
  for (const draft of drafts) {
    const i = "capability_id" in draft ? objectOf.get(draft.capability_id) : undefined;
    (i === undefined ? rest : own[i]!).push(draft);
  }
  const count = Math.max(packed.length, Math.ceil(rest.length / most));
  return Array.from({ length: count }, (_, i) => ({
    lines: packed[i] ?? null,
    drafts: [...(own[i] ?? []), ...rest.slice(i * most, (i + 1) * most)],
  }));
}

/**
 * The owner's part of the pipeline: it ingests and grades the partitions that are assigned to this process. It
 * publishes nothing and has no key. It writes runs as private objects, which the publisher takes.
 */
export class Owner {
  /** Times at which cards change without new records, from the runs of this process; null before the first run. */
  #dueAt: MomentIndex | null = null;
  /** The published table of related parties with which the last run was graded. */
  #gradedTable: readonly NonDeliveringSeller[] = [];
  /** UTC day and time of each endpoint's newest line in a run, until the endpoint is graded again. */
  readonly #newestLines = new Map<string, { day: string; at: string }>();

  /** UTC days on which published cards change without new records. */
  #dueDays: DueDays | null = null;
  readonly #refusals: Refusals;
  readonly #evidence: ReturnType<typeof openEvidenceParts>;
  readonly #archive: ReturnType<typeof openArchiveParts>;
  readonly #tablesParts: OwnerParts & { tables: PartitionTables };
  readonly #liveTables: LiveTables;

  constructor(private readonly parts: OwnerParts) {
    const { privateStore, log } = parts;
    this.#refusals = new Refusals(privateStore);
    this.#evidence = openEvidenceParts(privateStore, log);
    this.#archive = openArchiveParts(privateStore, log);
    this.#tablesParts = { ...parts, tables: new PartitionTables(privateStore, log) };
    this.#liveTables = openOwnLive(this.#tablesParts);
  }

  /**
   * Loads the partitions that are held now into the lake, and removes others.
   * @returns the held partitions
   */
  async #holdAssignedPartitions(): Promise<readonly number[]> {
    const held = this.parts.ownership.held();
    await this.parts.ingest.hold(held);
    return held;
  }

  /**
   * Loads this owner's partitions, for work that reads them in several statements. `refuseRevoked` throws once a
   * partition was revoked since this call, also when the revocation came while they were loaded.
   */
  async #loadPartitions(): Promise<{ held: readonly number[]; refuseRevoked: () => void }> {
    const held = await this.#holdAssignedPartitions();
    const refuseRevoked = this.#createRevokedCheck(held);
    await this.parts.ingest.pass();
    return { held, refuseRevoked };
  }

  /** Writes all records that the log has for this owner's partitions into segments and lake. */
  async ingest(): Promise<{ held: readonly number[]; rows: number; positions: Positions }> {
    const held = await this.#holdAssignedPartitions();
    const passed = await this.parts.ingest.pass();
    return { held, ...passed };
  }

  /**
   * Grades this owner's endpoints that are dirty or due now, and writes a run with the changes.
   * @throws PartitionsRevoked, and errors of lake, log and stores; then the next call grades everything
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
    const { lake, followed, metrics } = this.parts;
    const { held, refuseRevoked } = await this.#loadPartitions();
    if (held.length === 0) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: null };
    await followed.current();
    await this.#readRefusals(now);
    // The table is read once before grading, since the fold may change meanwhile and the run names the table with which
    // its cards are graded.
    const { table, sha256 } = followed.fold.relatedParties;
    const due = await this.#dueEndpoints(now, new Set(held), table);
    const graded = await gradeLake(lake, now, due, {
      changesNothing: (at, line) => changesNothing(followed.fold.caps.get(line.cap), at, line),
      onLine: ({ cap, due_at }) => {
        this.#dueAt ??= new MomentIndex();
        this.#dueAt.set(cap, due_at);
      },
      related: table,
      runLines: this.parts.runLines ?? RUN_LINES,
    });
    const { run } = graded;
    this.#gradedTable = table;
    const number = await this.#writeRun(now, graded, sha256, refuseRevoked);
    if (!run) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: number };
    // Most turns change nothing, so they are not logged as information.
    const lines = run.objects.reduce((sum, { caps }) => sum + caps.length, 0);
    const logged = { run: number, endpoints: run.read.caps, rows: run.read.rows, lines };
    if (number !== null) this.parts.logger.info(logged, "endpoints were graded");
    metrics.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    metrics.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    metrics.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    return { held, ...run.read, lines, run: number };
  }

  /**
   * Writes the volatile tables of this owner's partitions, which the publisher then names.
   * @returns number of partitions whose table changed
   * @throws PartitionsRevoked, Outrun
   */
  async volatile(): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    return held.length > 0 ? writeOwnVolatile(this.#tablesParts, this.#liveTables, held, refuseRevoked) : 0;
  }

  /**
   * Writes the charts' files of this owner's buckets that changed.
   * @returns number of files that were written
   */
  async history(now: Date): Promise<number> {
    const held = await this.#holdAssignedPartitions();
    return held.length > 0 ? writeOwnHistory(this.#tablesParts, held, now, this.#createRevokedCheck(held)) : 0;
  }

  /**
   * Makes the evidence files of closed days for this owner's buckets.
   * @returns number of files that were made
   */
  async evidence(now: Date): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    if (held.length === 0) return 0;
    const parts = { ...this.#tablesParts, objects: this.#evidence, refuseRevoked };
    return makeOwnEvidence(parts, held, now);
  }

  /**
   * Removes rows that the archive has from the lake, and writes down for the publisher which other rows are old enough.
   * @throws as {@link makeOwnArchive}
   */
  async archive(now: Date, more: Pick<OwnArchive, "onStep"> = {}): Promise<OwnArchiveReport> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    const parts = { ...this.parts, objects: this.#archive, refuseRevoked, ...more };
    return held.length > 0 ? makeOwnArchive(parts, held, now) : { removed: 0, rows: 0 };
  }

  /** Joins small segments of this owner's commit chains, and deletes objects that nothing needs. */
  async tidy(): Promise<void> {
    if ((await this.#holdAssignedPartitions()).length > 0) await this.parts.ingest.tidy();
  }

  /**
   * Writes the run as private objects, unless the publisher would publish nothing of it. Corrections, commitments and
   * receipts are read after the grading. Rows that left the lake in between would be missing below the run's positions,
   * so `refuseRevoked` is called before each write. Only the last object lists the endpoints that took money, so the table
   * of related parties changes once, after all cards. If this process dies between two objects, the next one grades
   * everything.
   */
  async #writeRun(
    now: Date,
    { facts, run, positions, nonDelivering }: GradeResult,
    kin_sha256: string,
    refuseRevoked: () => void,
  ): Promise<number | null> {
    const { privateStore, log, lake, followed } = this.parts;
    const corrections = await readCorrectionsBelow(lake, positions);
    const commitments = await unpublishedCommitments(lake, followed.fold, now);
    const receipts = await unpublishedReceipts(lake, followed.fold);
    const drafts = [...listingDrafts(facts.listed, facts.unlisted), ...corrections, ...commitments, ...receipts];
    const extra = newDraftsOf(followed.fold, drafts) as RunDrafts;
    const at = rfc3339(now);
    const changes = relatedPartyDrafts(followed.fold, { now: at, positions, thieves: nonDelivering }, log.partitions);
    const objects = runObjects(run?.objects ?? [], extra, this.parts.runLines ?? RUN_LINES);
    refuseRevoked();
    if (objects.length === 0 && changes.length === 0) return null;
    if (objects.length === 0) objects.push({ lines: null, drafts: [] });
    const read = { v: 2 as const, log: log.id, now: at, params_sha256: PARAMS_SHA256, positions, kin_sha256 };
    let n = -1;
    for (const [i, { lines, drafts: own }] of objects.entries()) {
      refuseRevoked();
      const table = i + 1 === objects.length ? { thieves: nonDelivering } : {};
      const caps = lines?.caps ?? [];
      n = await writeRun(privateStore, { ...read, ...table, changed: caps.length }, lines ?? [], n, own);
      this.#refusals.addRun(n);
      for (const cap of caps) this.#newestLines.set(cap, { day: dayOf(now), at });
    }
    return n;
  }

  /** Reads which runs of this owner the publisher refused. Their content is lost, so everything is graded again. */
  async #readRefusals(now: Date): Promise<void> {
    const { logger, metrics } = this.parts;
    for (const { run, reason } of await this.#refusals.readNew(now)) {
      logger.error({ run, reason }, "a run of this owner was not taken; everything is graded anew");
      metrics.count("touchstone_owner_runs_refused_total");
    }
    if (this.#refusals.mustGradeAll(now)) this.#dueAt = null;
  }

  /** Returns the endpoints that are due by time or by a change of the table of related parties; null if all are due. */
  async #dueEndpoints(
    now: Date,
    held: ReadonlySet<number>,
    table: readonly NonDeliveringSeller[],
  ): Promise<string[] | null> {
    const { followed, log, lake } = this.parts;
    const today = dayOf(now);
    const unpublishedCaps = this.#takeUnpublished(today);
    if (this.#dueAt === null) return null;
    this.#dueDays ??= new DueDays(followed.fold);
    const changed = changedRows(this.#gradedTable, table);
    const related = changed.length
      ? await lake.all<{ cap: string }>(sql("grade/related:affected"), { changed: JSON.stringify(changed) })
      : [];
    const byTable = related.map(({ cap }) => cap);
    const due = [...this.#dueDays.due(today), ...this.#dueAt.due(rfc3339(now)), ...unpublishedCaps, ...byTable];
    return due.filter((cap) => held.has(partitionOf(cap, log.partitions)));
  }

  /**
   * Returns the endpoints with a line in a run of an earlier day that is not in the tree, because it had to wait or the
   * run was refused.
   */
  #takeUnpublished(today: string): string[] {
    const waited: string[] = [];
    for (const [cap, { day, at }] of this.#newestLines) {
      if (day >= today) continue;
      this.#newestLines.delete(cap);
      if ((this.parts.followed.fold.caps.get(cap)?.computedAt ?? "") < at) waited.push(cap);
    }
    return waited;
  }

  /**
   * Returns a function that throws if one of these partitions was revoked after this call. Then rows that were read
   * since may be incomplete, even if the partition is held again, and another process may write the partition's
   * objects.
   */
  #createRevokedCheck(held: readonly number[]): () => void {
    const { ingest } = this.parts;
    const before = ingest.revocations;
    return () => {
      if (ingest.revocations !== before) throw new PartitionsRevoked();
      this.#checkNotRevoked(held);
    };
  }

  #checkNotRevoked(held: readonly number[]): void {
    const now = new Set(this.parts.ownership.held());
    if (!held.every((partition) => now.has(partition))) throw new PartitionsRevoked();
  }
}
