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
  readUnpublishedCommitments,
  readUnpublishedReceipts,
  relatedPartyDrafts,
} from "../../4-publish/known.ts";
import { MomentIndex } from "../../4-publish/moments.ts";
import { MAX_RUN_LINES, type PackedLines, type RunDrafts, writeRun } from "../../4-publish/runs.ts";
import { changesNothing } from "../../4-publish/take-lines.ts";
import { readCorrectionsBelow } from "../../corrections/endpoint-record.ts";
import { partitionOf } from "../../record/ids.ts";
import { dayOf, rfc3339 } from "../../record/time.ts";
import type { Positions } from "../../record/volatile.ts";
import { openArchiveParts } from "./archive-parts.ts";
import { makeOwnEvidence, openEvidenceParts } from "./evidence.ts";
import { type GradeResult, gradeLake } from "./grading.ts";
import type { LiveTables } from "./live-tables.ts";
import { makeOwnArchive, type OwnArchiveParts, type OwnArchiveReport } from "./own-archive.ts";
import { Refusals } from "./refusals.ts";
import { openOwnLive, PartitionTables, writeOwnHistory, writeOwnVolatile } from "./tables.ts";

export interface OwnerParts {
  ownership: Pick<Ownership, "held" | "heard" | "onChange">;
  log: Pick<Log, "id" | "partitions">;
  privateStore: Store;
  /**
   * The store to which this owner writes volatile tables, charts and evidence files of its partitions. Readers use
   * these files once the publisher names them.
   */
  publicStore: Store;
  clock: Clock;
  /** The database of the log's rows. It has the partitions that are assigned to this process, and no others. */
  lake: Lake;
  ingest: Ingest;
  /** The published record: that of the publisher in this process, or as read from the public store. */
  followed: PublishedRecord;
  logger: Logger;
  metrics: Metrics;
  /**
   * Largest number of lines (one for each endpoint with changed cards) of one run object (default {@link
   * MAX_RUN_LINES}).
   */
  runLines?: number;
}

export interface OwnerReport {
  /** Partitions that this process held. */
  held: readonly number[];
  /** Number of endpoints that were read. */
  caps: number;
  /** Number of rows that were read. */
  rows: number;
  /** Number of lines of the run that was written, one for each endpoint with changed cards. */
  lines: number;
  /** Number of graded endpoints that are not in the run, because nothing of their published card would change. */
  leftOut: number;
  /** Number of the run (of its last object, if it has several); null when none was written. */
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

/**
 * Continues ingest with the partitions that are assigned to this process. While it has no contact with the group of
 * owners, it works on none, but ingest is only suspended: when the group's broker is down, all owners lose contact at
 * the same time, and if they dropped their partitions, they would have to load their whole lakes again.
 * @returns the held partitions
 */
export async function holdAssigned(
  ingest: Ingest,
  ownership: Pick<Ownership, "held" | "heard">,
): Promise<readonly number[]> {
  const held = ownership.held();
  if (!ownership.heard) {
    ingest.suspend();
    return [];
  }
  await ingest.hold(held);
  return held;
}

const rowKey = ({ cap, pay_to, domain }: NonDeliveringSeller): string => JSON.stringify([cap, pay_to, domain]);

/** Returns the rows in which two tables of related parties differ. */
function changedRows(
  before: readonly NonDeliveringSeller[],
  after: readonly NonDeliveringSeller[],
): NonDeliveringSeller[] {
  const [keysBefore, keysAfter] = [new Set(before.map(rowKey)), new Set(after.map(rowKey))];
  return [
    ...before.filter((thief) => !keysAfter.has(rowKey(thief))),
    ...after.filter((thief) => !keysBefore.has(rowKey(thief))),
  ];
}

/** Time after which an unpublished draft, which waits in an earlier run, is written into a run again, ms. */
const REWRITE_MS = 600_000;

/**
 * Remembers the drafts that this owner wrote into its runs beside cards: corrections, commitments, receipts, and
 * changes of the table of related parties. Until they are published, the owner finds them in its lake in each turn.
 * While the publisher is slow or down, they wait in the run that has them and are not written again in each turn.
 */
class WaitingDrafts {
  readonly #writtenAtMs = new Map<string, number>();

  /**
   * Returns whether an equal draft was written less than {@link REWRITE_MS} ago, and is neither published nor refused.
   */
  isWaiting(draft: unknown, now: Date): boolean {
    const writtenAtMs = this.#writtenAtMs.get(JSON.stringify(draft));
    return writtenAtMs !== undefined && Math.abs(now.getTime() - writtenAtMs) < REWRITE_MS;
  }

  add(draft: unknown, now: Date): void {
    this.#writtenAtMs.set(JSON.stringify(draft), now.getTime());
  }

  /** Forgets all drafts except these, which are not published yet. */
  retain(unpublished: readonly unknown[]): void {
    const keys = new Set(unpublished.map((draft) => JSON.stringify(draft)));
    for (const key of this.#writtenAtMs.keys()) if (!keys.has(key)) this.#writtenAtMs.delete(key);
  }
}

/**
 * Returns whether a draft is of a listing or a delisting. Such drafts are read only once, with the new records of their
 * endpoint, so each is written at once.
 */
const isOfListing = ({ kind }: RunDrafts[number]): boolean => kind === "listing" || kind === "delisting";

/**
 * Divides a run among several private objects: its lines (endpoints with their cards) and its drafts (leaves to
 * publish beside the cards). An object has one pack of lines, the drafts about the endpoints of these lines (since a
 * correction is published together with the cards that it changes), and at most `maxDrafts` of the other drafts.
 */
function divideIntoRunObjects(
  packed: readonly PackedLines[],
  drafts: RunDrafts,
  maxDrafts: number,
): { lines: PackedLines | null; drafts: RunDrafts }[] {
  const objectByCap = new Map(packed.flatMap(({ caps }, i) => caps.map((cap) => [cap, i] as const)));
  const draftsOfObject: RunDrafts[number][][] = packed.map(() => []);
  const otherDrafts: RunDrafts[number][] = [];
  for (const draft of drafts) {
    const i = "capability_id" in draft ? objectByCap.get(draft.capability_id) : undefined;
    (i === undefined ? otherDrafts : draftsOfObject[i]!).push(draft);
  }
  const count = Math.max(packed.length, Math.ceil(otherDrafts.length / maxDrafts));
  return Array.from({ length: count }, (_, i) => ({
    lines: packed[i] ?? null,
    drafts: [...(draftsOfObject[i] ?? []), ...otherDrafts.slice(i * maxDrafts, (i + 1) * maxDrafts)],
  }));
}

/**
 * The owner's part of the pipeline: it ingests and grades the partitions that are assigned to this process. It
 * publishes nothing and has no key. It writes the result of each grading, a run, as private objects, which the
 * publisher reads and publishes.
 */
export class Owner {
  /**
   * Times at which cards change without new records, as this process has computed them; null before the first
   * grading, after a failure and after a refused run; then everything is graded.
   */
  #dueAt: MomentIndex | null = null;
  /**
   * The published table of related parties (endpoints that took money without an answer, with their payees and
   * domains) with which the last run was graded.
   */
  #gradedTable: readonly NonDeliveringSeller[] = [];
  /**
   * UTC day and time of each endpoint's newest line in a run of this process. On a later day the entry is removed,
   * and the endpoint is graded again if the line was not published.
   */
  readonly #newestLines = new Map<string, { day: string; at: string }>();
  readonly #waitingDrafts = new WaitingDrafts();

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
   * Makes the ingest work on the partitions that are assigned to this process now, and removes the rows of all others
   * from the lake. Without contact with the group of owners it works on none, but keeps the rows.
   * @returns the held partitions
   */
  #holdAssignedPartitions(): Promise<readonly number[]> {
    return holdAssigned(this.parts.ingest, this.parts.ownership);
  }

  /**
   * Loads this owner's partitions, for work that reads them in several statements. `refuseRevoked` throws if one of
   * them was taken from this process at any time since this call, also while they were loaded.
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
    const ingested = await this.parts.ingest.pass();
    return { held, ...ingested };
  }

  /**
   * Grades this owner's endpoints that have new records or whose cards change by time now, and writes a run with the
   * changes.
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
    // The table of related parties is read once before grading, since `followed.fold` may change meanwhile and the
    // run names the table with which its cards are graded.
    const { table, sha256 } = followed.fold.relatedParties;
    const dueCaps = await this.#dueEndpoints(now, new Set(held), table);
    const graded = await gradeLake(lake, now, dueCaps, {
      changesNothing: (at, line) => changesNothing(followed.fold.caps.get(line.cap), at, line),
      onLine: ({ cap, due_at }) => {
        this.#dueAt ??= new MomentIndex();
        this.#dueAt.set(cap, due_at);
      },
      related: table,
      runLines: this.parts.runLines ?? MAX_RUN_LINES,
    });
    const { run } = graded;
    this.#gradedTable = table;
    const runNumber = await this.#writeRun(now, graded, sha256, refuseRevoked);
    if (!run) return { held, caps: 0, rows: 0, lines: 0, leftOut: 0, run: runNumber };
    // Most gradings change nothing; those are not logged.
    const lines = run.objects.reduce((sum, { caps }) => sum + caps.length, 0);
    const logFields = { run: runNumber, endpoints: run.read.caps, rows: run.read.rows, lines };
    if (runNumber !== null) this.parts.logger.info(logFields, "endpoints were graded");
    metrics.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    metrics.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    metrics.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    return { held, ...run.read, lines, run: runNumber };
  }

  /**
   * Writes the volatile tables of this owner's partitions, which the publisher then names.
   * @returns number of partitions whose table changed
   * @throws PartitionsRevoked, OvertakenByOwner
   */
  async writeVolatile(): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    return held.length > 0 ? writeOwnVolatile(this.#tablesParts, this.#liveTables, held, refuseRevoked) : 0;
  }

  /**
   * Writes the files of the charts on endpoints' pages, for the buckets (fixed shares of the endpoints) of this owner
   * that changed.
   * @returns number of files that were written
   */
  async writeHistory(now: Date): Promise<number> {
    const held = await this.#holdAssignedPartitions();
    return held.length > 0 ? writeOwnHistory(this.#tablesParts, held, now, this.#createRevokedCheck(held)) : 0;
  }

  /**
   * Makes the evidence files (all samples, by day) of finished days for this owner's partitions.
   * @returns number of files that were made
   */
  async makeEvidence(now: Date): Promise<number> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    if (held.length === 0) return 0;
    const parts = { ...this.#tablesParts, objects: this.#evidence, refuseRevoked };
    return makeOwnEvidence(parts, held, now);
  }

  /**
   * Removes rows that are in published archive files from the lake, and lists for the publisher the other rows that
   * are old enough to be archived.
   * @throws as {@link makeOwnArchive}
   */
  async makeArchive(now: Date, options: Pick<OwnArchiveParts, "onStep"> = {}): Promise<OwnArchiveReport> {
    const { held, refuseRevoked } = await this.#loadPartitions();
    const parts = { ...this.parts, objects: this.#archive, refuseRevoked, ...options };
    return held.length > 0 ? makeOwnArchive(parts, held, now) : { removed: 0, rows: 0 };
  }

  /** Joins small segments (files of log records) of this owner's partitions, and deletes objects that nothing needs. */
  async tidy(): Promise<void> {
    if ((await this.#holdAssignedPartitions()).length > 0) await this.parts.ingest.tidy();
  }

  /**
   * Writes the run as private objects, unless the publisher would publish nothing of it, or nothing but what waits in
   * an earlier run. Corrections, commitments and receipts are read after the grading. If a partition was taken from
   * this process in between, some may be missing, although the run's positions state that they were read, so
   * `refuseRevoked` is called before each write. Only the last object lists the endpoints that took money without an
   * answer, so the table of related parties changes once, after all cards. If this process dies between two objects,
   * the next one grades everything.
   */
  async #writeRun(
    now: Date,
    { facts, run, positions, nonDelivering }: GradeResult,
    kin_sha256: string,
    refuseRevoked: () => void,
  ): Promise<number | null> {
    const { privateStore, log, lake, followed } = this.parts;
    const corrections = await readCorrectionsBelow(lake, positions);
    const commitments = await readUnpublishedCommitments(lake, followed.fold, now);
    const receipts = await readUnpublishedReceipts(lake, followed.fold);
    const drafts = [...listingDrafts(facts.listed, facts.unlisted), ...corrections, ...commitments, ...receipts];
    const newDrafts = newDraftsOf(followed.fold, drafts) as RunDrafts;
    const at = rfc3339(now);
    const tableChanges = relatedPartyDrafts(
      followed.fold,
      { now: at, positions, thieves: nonDelivering },
      log.partitions,
    ).map(({ computed_at: _, ...change }) => change);
    const waiting = this.#waitingDrafts;
    waiting.retain([...newDrafts, ...tableChanges]);
    // A correction is written again with every line of its endpoint, since the card may not be published before it.
    const linedCaps = new Set(run?.objects.flatMap(({ caps }) => caps));
    const dueDrafts = newDrafts.filter(
      (draft) =>
        isOfListing(draft) ||
        ("capability_id" in draft && linedCaps.has(draft.capability_id)) ||
        !waiting.isWaiting(draft, now),
    );
    const objects = divideIntoRunObjects(run?.objects ?? [], dueDrafts, this.parts.runLines ?? MAX_RUN_LINES);
    refuseRevoked();
    if (objects.length === 0 && tableChanges.every((change) => waiting.isWaiting(change, now))) return null;
    if (objects.length === 0) objects.push({ lines: null, drafts: [] });
    const commonHeader = { v: 2 as const, log: log.id, now: at, params_sha256: PARAMS_SHA256, positions, kin_sha256 };
    let runNumber = -1;
    for (const [i, { lines, drafts: objectDrafts }] of objects.entries()) {
      refuseRevoked();
      const lastObjectMembers = i + 1 === objects.length ? { thieves: nonDelivering } : {};
      const caps = lines?.caps ?? [];
      runNumber = await writeRun(
        privateStore,
        { ...commonHeader, ...lastObjectMembers, changed: caps.length },
        lines ?? [],
        runNumber,
        objectDrafts,
      );
      this.#refusals.addRun(runNumber);
      for (const cap of caps) this.#newestLines.set(cap, { day: dayOf(now), at });
    }
    for (const written of [...dueDrafts, ...tableChanges]) waiting.add(written, now);
    return runNumber;
  }

  /**
   * Reads which runs of this owner the publisher refused. Their cards are in no other run, so everything is graded
   * again.
   */
  async #readRefusals(now: Date): Promise<void> {
    const { logger, metrics } = this.parts;
    for (const { run, reason } of await this.#refusals.readNew(now)) {
      logger.error({ run, reason }, "a run of this owner was not taken; everything is graded anew");
      metrics.count("touchstone_owner_runs_refused_total");
    }
    if (!this.#refusals.mustGradeAll(now)) return;
    this.#dueAt = null;
    this.#waitingDrafts.retain([]);
  }

  /**
   * Returns the endpoints that must be graded although they have no new records: because time has passed, the table
   * of related parties has changed, or an earlier run of theirs was not published. Those that are due today by their
   * published cards are left out while a line of today waits for the publisher. null if all endpoints must be graded.
   */
  async #dueEndpoints(
    now: Date,
    heldPartitions: ReadonlySet<number>,
    table: readonly NonDeliveringSeller[],
  ): Promise<string[] | null> {
    const { followed, log, lake } = this.parts;
    const today = dayOf(now);
    const unpublishedCaps = this.#takeUnpublished(today);
    if (this.#dueAt === null) return null;
    this.#dueDays ??= new DueDays(followed.fold);
    const changedSellers = changedRows(this.#gradedTable, table);
    const affected = changedSellers.length
      ? await lake.all<{ cap: string }>(sql("grade/related:affected"), { changed: JSON.stringify(changedSellers) })
      : [];
    const affectedCaps = affected.map(({ cap }) => cap);
    const dueCaps = [
      ...this.#dueDays.findDueEndpoints(today).filter((cap) => this.#newestLines.get(cap)?.day !== today),
      ...this.#dueAt.findDue(rfc3339(now)),
      ...unpublishedCaps,
      ...affectedCaps,
    ];
    return dueCaps.filter((cap) => heldPartitions.has(partitionOf(cap, log.partitions)));
  }

  /**
   * Returns the endpoints with a line in a run of an earlier day that was not published, because the run had to wait
   * or was refused.
   */
  #takeUnpublished(today: string): string[] {
    const unpublishedCaps: string[] = [];
    for (const [cap, { day, at }] of this.#newestLines) {
      if (day >= today) continue;
      this.#newestLines.delete(cap);
      if ((this.parts.followed.fold.caps.get(cap)?.computedAt ?? "") < at) unpublishedCaps.push(cap);
    }
    return unpublishedCaps;
  }

  /**
   * Returns a function that throws if one of these partitions was taken from this process after this call. Then what
   * was read since may be incomplete, even if the partition was assigned to this process again, and another process
   * may write the partition's objects.
   */
  #createRevokedCheck(heldPartitions: readonly number[]): () => void {
    const { ingest } = this.parts;
    const revocationsBefore = ingest.revocations;
    return () => {
      if (ingest.revocations !== revocationsBefore) throw new PartitionsRevoked();
      this.#checkNotRevoked(heldPartitions);
    };
  }

  #checkNotRevoked(heldPartitions: readonly number[]): void {
    const heldNow = new Set(this.parts.ownership.held());
    if (!heldPartitions.every((partition) => heldNow.has(partition))) throw new PartitionsRevoked();
  }
}
