import type { Clock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Ingest } from "../2-ingest/ingest.ts";
import type { Positions } from "../2-ingest/load.ts";
import { Kin, type Thief } from "../3-grade/kin.ts";
import { PARAMS_SHA256 } from "../3-grade/params.ts";
import { openCommitments } from "../4-publish/commitments.ts";
import type { Followed } from "../4-publish/followed.ts";
import { listingDrafts, unknownDrafts } from "../4-publish/known.ts";
import { Moments } from "../4-publish/moments.ts";
import { type RunSaid, writeRun } from "../4-publish/runs.ts";
import { keepKin } from "../5-archive/kin-tables.ts";
import { correctionsBelow } from "../corrections/drafts.ts";
import type { LiveTables } from "../live-tables.ts";
import { partitionOf } from "../record/ids.ts";
import { dayOf, rfc3339 } from "../record/time.ts";
import { archiveParts } from "./archive-parts.ts";
import { evidenceParts, makeOwnEvidence } from "./evidence.ts";
import { type Graded, gradeLake } from "./grading.ts";
import { HandsChanged } from "./hands.ts";
import { settleWaiting } from "./moved.ts";
import { makeOwnArchive, type OwnArchive, type OwnArchiveReport } from "./own-archive.ts";
import { Payees, turnedBetween } from "./payees.ts";
import { Refusals } from "./refusals.ts";
import { openOwnLive, Tables, writeOwnHistory, writeOwnVolatile } from "./tables.ts";

export interface OwnerParts {
  ownership: Pick<Ownership, "held" | "onChange">;
  log: Pick<Log, "id" | "partitions" | "bounds">;
  privateStore: Store;
  /** Volatile tables, charts and evidence files of our partitions go there; whoever names them is another. */
  publicStore: Store;
  clock: Clock;
  /** Holds the partitions that are this process' and no other. */
  lake: Lake;
  ingest: Ingest;
  followed: Followed;
  logger: Logger;
  metrics: Metrics;
  /**
   * Called between saying what our partitions add to the table of payees and reading the others' (default: nothing is
   * waited for). Whoever compares runs waits here until all owners have said theirs.
   */
  settled?: (now: Date, held: readonly number[]) => Promise<void>;
}

export interface OwnerReport {
  held: readonly number[];
  /** Endpoints and rows that were read, and the lines of the run that was written. */
  caps: number;
  rows: number;
  lines: number;
  /** Number of the run, null when there was nothing to say. */
  run: number | null;
}

export { HandsChanged };

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
  /** Endpoint -> UTC day and moment of the newest line that a run said of it, until it was looked at again. */
  readonly #said = new Map<string, { day: string; at: string }>();

  readonly #refusals: Refusals;
  readonly #evidence: ReturnType<typeof evidenceParts>;
  readonly #archive: ReturnType<typeof archiveParts>;
  readonly #files: OwnerParts & { tables: Tables };
  readonly #live: LiveTables;
  /** False while rows of archived days wait that no total holds yet. */
  #whole = true;

  constructor(private readonly parts: OwnerParts) {
    const { privateStore, log } = parts;
    this.payees = new Payees(privateStore, log.id, log.partitions);
    this.#refusals = new Refusals(privateStore);
    this.#evidence = evidenceParts(privateStore, log.id);
    this.#archive = archiveParts(privateStore, log.id);
    this.#files = { ...parts, tables: new Tables(privateStore, log.id) };
    this.#live = openOwnLive(this.#files);
  }

  /** Partitions held now; the lake is brought to them. */
  async #take(): Promise<readonly number[]> {
    const held = this.parts.ownership.held();
    await this.parts.ingest.hold(held);
    return held;
  }

  /** Everything that the log holds of our partitions, into segments and lake. */
  async ingest(): Promise<{ held: readonly number[]; rows: number; positions: Positions }> {
    const held = await this.#take();
    const passed = await this.parts.ingest.pass();
    const { lake, log } = this.parts;
    this.#whole = await settleWaiting({ ...this.parts, partitions: log.partitions }, lake);
    return { held, ...passed };
  }

  /**
   * Grade what is dirty or due in our partitions at this moment, and write a run when there is something to say.
   * @throws HandsChanged, Outrun, and what lake, log and stores throw; the next call looks at everything then
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
    const { held } = await this.ingest();
    if (held.length === 0) return { held, caps: 0, rows: 0, lines: 0, run: null };
    await followed.current();
    await this.#hearRefusals(now);
    const due = this.#due(now, new Set(held));
    const before = this.#table;
    const exchange = (own: readonly Thief[], positions: Positions) => this.#exchange(own, positions, held, now);
    const graded = await gradeLake(lake, now, due, {
      saysNothing: (at, line) => followed.saysNothing(at, line),
      onLine: ({ cap, due_at }) => {
        this.#dueAt ??= new Moments();
        this.#dueAt.set(cap, due_at);
      },
      kin: exchange,
    });
    const { run } = graded;
    // Others may have said something although nothing of ours was dirty or due.
    this.#table = run ? graded.thieves : await exchange(await this.#ownThieves(), graded.positions);
    const number = await this.#write(now, graded, held);
    await this.#kinDue(before, run?.kinDue ?? [], rfc3339(now));
    if (!run) return { held, caps: 0, rows: 0, lines: 0, run: number };
    metrics.count("touchstone_grade_endpoints_read_total", {}, run.read.caps);
    metrics.count("touchstone_grade_rows_read_total", {}, run.read.rows);
    metrics.count("touchstone_grade_lines_left_out_total", {}, run.read.leftOut);
    return { held, ...run.read, lines: run.lines.length, run: number };
  }

  /**
   * Volatile tables of our partitions, for the publisher to name. @returns partitions whose table changed
   * @throws HandsChanged, Outrun
   */
  async volatile(): Promise<number> {
    const { held } = await this.ingest();
    // What the owner before us has written stands: totals never go back.
    if (held.length === 0 || !this.#whole) return 0;
    return writeOwnVolatile(this.#files, this.#live, held, (mine) => this.#refuseLost(mine));
  }

  /** The charts' files of our buckets that changed. @returns files that were written */
  async history(now: Date): Promise<number> {
    const held = await this.#take();
    return held.length > 0 ? writeOwnHistory(this.#files, held, now) : 0;
  }

  /** Evidence files of our buckets, of days that are closed. @returns files that were made */
  async evidence(now: Date): Promise<number> {
    const { held } = await this.ingest();
    return held.length > 0 ? makeOwnEvidence({ ...this.#files, objects: this.#evidence }, held, now) : 0;
  }

  /**
   * The archive of days that came of age: rows that are filed leave the lake, further ones are put for the publisher.
   * @throws what {@link makeOwnArchive} names
   */
  async archive(now: Date, more: Pick<OwnArchive, "onStep" | "rowsAFile"> = {}): Promise<OwnArchiveReport> {
    const { held } = await this.ingest();
    const refuseLost = (mine: readonly number[]) => this.#refuseLost(mine);
    const parts = { ...this.parts, objects: this.#archive, refuseLost, ...more };
    return held.length > 0 ? makeOwnArchive(parts, held, now) : { removed: 0, rows: 0 };
  }

  /** Small segments of our chains become one, and what nothing needs is deleted. */
  async tidy(): Promise<void> {
    if ((await this.#take()).length > 0) await this.parts.ingest.tidy();
  }

  /** The second pass: what ours add, and then the table of all partitions. */
  async #exchange(
    own: readonly Thief[],
    positions: Positions,
    held: readonly number[],
    now: Date,
  ): Promise<readonly Thief[]> {
    this.#refuseLost(held);
    await this.payees.say(own, positions, held);
    await this.parts.settled?.(now, held);
    return this.payees.table();
  }

  async #ownThieves(): Promise<Thief[]> {
    const { lake } = this.parts;
    // A lake that was never graded has no such table yet.
    const [made] = await lake.all("SELECT 1 FROM information_schema.tables WHERE table_name = 'thefts'");
    return made ? lake.all<Thief>(sql("51_thieves")) : [];
  }

  /** The run as a private object. Nothing is written where nothing would be published. */
  async #write(now: Date, { facts, run, positions, thieves }: Graded, held: readonly number[]): Promise<number | null> {
    const { privateStore, log, lake, followed } = this.parts;
    const corrections = await correctionsBelow(lake, positions);
    const commitments = await openCommitments(lake, followed.fold, now);
    const drafts = [...listingDrafts(facts.listed, facts.unlisted), ...corrections, ...commitments];
    const said = unknownDrafts(followed.fold, drafts) as RunSaid;
    const lines = run?.lines ?? [];
    if (lines.length + said.length === 0) return null;
    const table = run ? thieves : this.#table!;
    const { sha256: kin_sha256 } = new Kin(table);
    await keepKin(privateStore, kin_sha256, table);
    this.#refuseLost(held);
    const at = rfc3339(now);
    const header = { v: 1 as const, log: log.id, now: at, params_sha256: PARAMS_SHA256, positions, kin_sha256 };
    const n = await writeRun(privateStore, { ...header, changed: lines.length }, lines, -1, said);
    this.#refusals.wrote(n);
    for (const { cap } of lines) this.#said.set(cap, { day: dayOf(now), at });
    return n;
  }

  /** A run of ours that the publisher did not take: what it said is lost, and everything is looked at again. */
  async #hearRefusals(now: Date): Promise<void> {
    const { logger, metrics } = this.parts;
    for (const { run, reason } of await this.#refusals.look(now)) {
      logger.error({ run, reason }, "a run of this owner was not taken; everything is graded anew");
      metrics.count("touchstone_owner_runs_refused_total");
    }
    if (this.#refusals.anew(now)) this.#dueAt = null;
  }

  /** Endpoints of ours whose payee or domain took money or took none any more: due in the next run. */
  async #kinDue(before: readonly Thief[] | null, found: readonly string[], at: string): Promise<void> {
    const turned = before ? turnedBetween(before, this.#table ?? []) : [];
    const kin = turned.length
      ? await this.parts.lake.all<{ cap: string }>(sql("53_kin_of"), { turned: JSON.stringify(turned) })
      : [];
    for (const cap of [...found, ...kin.map((one) => one.cap)]) this.#dueAt?.set(cap, at);
  }

  /** Endpoints that are due by time, or null for all of them. */
  #due(now: Date, held: ReadonlySet<number>): string[] | null {
    const { followed, log } = this.parts;
    const today = dayOf(now);
    const waited = this.#unpublished(today);
    if (this.#dueAt === null) return null;
    const due = [...followed.due(today), ...this.#dueAt.due(rfc3339(now)), ...waited];
    return due.filter((cap) => held.has(partitionOf(cap, log.partitions)));
  }

  /** What a run said on an earlier day and the tree does not say: it had to wait for its day, or the run was not taken. */
  #unpublished(today: string): string[] {
    const waited: string[] = [];
    for (const [cap, { day, at }] of this.#said) {
      if (day >= today) continue;
      this.#said.delete(cap);
      if ((this.parts.followed.fold.caps.get(cap)?.computedAt ?? "") < at) waited.push(cap);
    }
    return waited;
  }

  #refuseLost(held: readonly number[]): void {
    const now = new Set(this.parts.ownership.held());
    if (!held.every((partition) => now.has(partition))) throw new HandsChanged();
  }
}
