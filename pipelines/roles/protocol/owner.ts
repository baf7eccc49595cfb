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
import type { Thief } from "../../3-grade/related.ts";
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
  /** This owner writes volatile tables, charts and evidence files of its partitions there. The publisher names them. */
  publicStore: Store;
  clock: Clock;
  /** Holds the partitions that are this process' and no other. */
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
  /** Endpoints and rows that were read, and the lines of the run that was written. */
  caps: number;
  rows: number;
  lines: number;
  /** Endpoints whose line says nothing new: it stays out of the run. */
  leftOut: number;
  /** Number of the run, of its last object where there are several; null when none was written. */
  run: number | null;
}

/** Partitions were taken from this process while it worked on them. Unfinished work is dropped; the next turn continues. */
export class PartitionsRevoked extends Failure {
  constructor() {
    super("busy", "partitions were revoked meanwhile");
  }
}

const keyOf = ({ cap, pay_to, domain }: Thief): string => JSON.stringify([cap, pay_to, domain]);

/** Rows in which two tables of related parties differ. */
function changedRows(before: readonly Thief[], after: readonly Thief[]): Thief[] {
  const [had, has] = [new Set(before.map(keyOf)), new Set(after.map(keyOf))];
  return [...before.filter((thief) => !has.has(keyOf(thief))), ...after.filter((thief) => !had.has(keyOf(thief)))];
}

/**
 * What each object of a run holds: lines, the drafts about their endpoints (a correction is published with the cards that it
 * changes), and a share of the other drafts, at most `most`.
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
 * The owner's half of the pipeline: ingest and grade of the partitions that this process was given. It publishes nothing
 * and holds no key: runs are private objects, which the publisher takes.
 */
export class Owner {
  /** Times at which cards change without new records, from the runs of this process; null before the first run. */
  #dueAt: MomentIndex | null = null;
  /** The published table of related parties with which the last run was graded. */
  #table: readonly Thief[] = [];
  /** Endpoint -> UTC day and time of its newest line in a run, until the endpoint is graded again. */
  readonly #lines = new Map<string, { day: string; at: string }>();

  /** UTC days on which published cards change without new records. */
  #dueDays: DueDays | null = null;
  readonly #refusals: Refusals;
  readonly #evidence: ReturnType<typeof openEvidenceParts>;
  readonly #archive: ReturnType<typeof openArchiveParts>;
  readonly #files: OwnerParts & { tables: PartitionTables };
  readonly #live: LiveTables;

  constructor(private readonly parts: OwnerParts) {
    const { privateStore, log } = parts;
    this.#refusals = new Refusals(privateStore);
    this.#evidence = openEvidenceParts(privateStore, log);
    this.#archive = openArchiveParts(privateStore, log);
    this.#files = { ...parts, tables: new PartitionTables(privateStore, log) };
    this.#live = openOwnLive(this.#files);
  }

  /** Brings the lake to the partitions that are held now. @returns these */
  async #takePartitions(): Promise<readonly number[]> {
    const held = this.parts.ownership.held();
    await this.parts.ingest.hold(held);
    return held;
  }

  /**
   * Loads our partitions, for work that reads them in several statements. `refuseRevoked` throws once a partition was
   * revoked since this call, also when the revocation came while they were loaded.
   */
  async #loadPartitions(): Promise<{ held: readonly number[]; refuseRevoked: () => void }> {
    const held = await this.#takePartitions();
    const refuseRevoked = this.#createRevokedCheck(held);
    await this.parts.ingest.pass();
    return { held, refuseRevoked };
  }

  /** Writes everything that the log holds of our partitions into segments and lake. */
  async ingest(): Promise<{ held: readonly number[]; rows: number; positions: Positions }> {
    const held = await this.#takePartitions();
    const passed = await this.parts.ingest.pass();
    return { held, ...passed };
  }

  /**
   * Grades endpoints of our partitions that are dirty or due at this moment, and writes a run of what changed.
   * @throws PartitionsRevoked, and what lake, log and stores throw; the next call looks at everything then
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
    // Read once before grading: the fold may change meanwhile, and the run names the table that its cards are graded with.
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
    this.#table = table;
    const number = await this.#writeRun(now, graded, sha256, refuseRevoked);
    if (!run) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: number };
    // Most turns change nothing, so they are not logged as information.
    const lines = run.objects.reduce((sum, { caps }) => sum + caps.length, 0);
    const told = { run: number, endpoints: run.read.caps, rows: run.read.rows, lines };
    if (number !== null) this.parts.logger.info(told, "endpoints were graded");
    metrics.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    metrics.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    metrics.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    return { held, ...run.read, lines, run: number };
  }

  /**
   * Volatile tables of our partitions, for the publisher to name. @returns partitions whose table changed
   * @throws PartitionsRevoked, Outrun
   */
  async volatile(): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    return held.length > 0 ? writeOwnVolatile(this.#files, this.#live, held, refuseRevoked) : 0;
  }

  /** The charts' files of our buckets that changed. @returns files that were written */
  async history(now: Date): Promise<number> {
    const held = await this.#takePartitions();
    return held.length > 0 ? writeOwnHistory(this.#files, held, now, this.#createRevokedCheck(held)) : 0;
  }

  /** Evidence files of our buckets, of days that are closed. @returns files that were made */
  async evidence(now: Date): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    if (held.length === 0) return 0;
    const parts = { ...this.#files, objects: this.#evidence, refuseRevoked };
    return makeOwnEvidence(parts, held, now);
  }

  /**
   * Removes rows that the archive holds from the lake, and writes down for the publisher which others are old enough.
   * @throws what {@link makeOwnArchive} names
   */
  async archive(now: Date, more: Pick<OwnArchive, "onStep"> = {}): Promise<OwnArchiveReport> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    const parts = { ...this.parts, objects: this.#archive, refuseRevoked, ...more };
    return held.length > 0 ? makeOwnArchive(parts, held, now) : { removed: 0, rows: 0 };
  }

  /** Joins small segments of our chains, and deletes objects that nothing needs. */
  async tidy(): Promise<void> {
    if ((await this.#takePartitions()).length > 0) await this.parts.ingest.tidy();
  }

  /**
   * Writes the run as private objects, unless the publisher would publish nothing of it. Corrections, commitments and
   * receipts are read after the look; if rows have left the lake in between, they would be missing below the run's
   * positions, so `refuseRevoked` is called before each write. The last object carries the list of thieves, so the table of
   * related parties changes once, after all cards. If this process dies between two objects, the next one grades everything.
   */
  async #writeRun(
    now: Date,
    { facts, run, positions, thieves }: GradeResult,
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
    const changes = relatedPartyDrafts(followed.fold, { now: at, positions, thieves }, log.partitions);
    const objects = runObjects(run?.objects ?? [], extra, this.parts.runLines ?? RUN_LINES);
    refuseRevoked();
    if (objects.length === 0 && changes.length === 0) return null;
    if (objects.length === 0) objects.push({ lines: null, drafts: [] });
    const read = { v: 2 as const, log: log.id, now: at, params_sha256: PARAMS_SHA256, positions, kin_sha256 };
    let n = -1;
    for (const [i, { lines, drafts: own }] of objects.entries()) {
      refuseRevoked();
      const table = i + 1 === objects.length ? { thieves } : {};
      const caps = lines?.caps ?? [];
      n = await writeRun(privateStore, { ...read, ...table, changed: caps.length }, lines ?? [], n, own);
      this.#refusals.addRun(n);
      for (const cap of caps) this.#lines.set(cap, { day: dayOf(now), at });
    }
    return n;
  }

  /** Reads which of our runs the publisher refused. Their content is lost, so everything is graded again. */
  async #readRefusals(now: Date): Promise<void> {
    const { logger, metrics } = this.parts;
    for (const { run, reason } of await this.#refusals.readNew(now)) {
      logger.error({ run, reason }, "a run of this owner was not taken; everything is graded anew");
      metrics.count("touchstone_owner_runs_refused_total");
    }
    if (this.#refusals.mustGradeAll(now)) this.#dueAt = null;
  }

  /** Endpoints that are due by time or by a change of the table of related parties, or null for all of them. */
  async #dueEndpoints(now: Date, held: ReadonlySet<number>, table: readonly Thief[]): Promise<string[] | null> {
    const { followed, log, lake } = this.parts;
    const today = dayOf(now);
    const waited = this.#unpublished(today);
    if (this.#dueAt === null) return null;
    this.#dueDays ??= new DueDays(followed.fold);
    const changed = changedRows(this.#table, table);
    const related = changed.length
      ? await lake.all<{ cap: string }>(sql("grade/related:affected"), { changed: JSON.stringify(changed) })
      : [];
    const byTable = related.map(({ cap }) => cap);
    const due = [...this.#dueDays.due(today), ...this.#dueAt.due(rfc3339(now)), ...waited, ...byTable];
    return due.filter((cap) => held.has(partitionOf(cap, log.partitions)));
  }

  /** Endpoints with a line in a run of an earlier day that is not in the tree: it had to wait, or the run was refused. */
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
   * Returns a function that throws once one of these partitions was revoked after this call: rows that were read since may
   * be incomplete, also where the partition is held again by then, and another process may write its objects.
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
