import { randomBytes } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { HistoryNames } from "../record/history.ts";
import type { View } from "../record/volatile.ts";
import type { ChainTime } from "./clocks.ts";
import { type CommitResult, Committer } from "./committer.ts";
import { type DayClose, type Filing, planDayCloses, planFilings } from "./filings.ts";
import type { PublishedRecord } from "./followed.ts";
import { writeIndex } from "./index-build.ts";
import { cardSignerAt, type PublisherSigners, readNewestKeys, writeKeys } from "./keys.ts";
import { newDraftsOf } from "./known.ts";
import type { Draft } from "./leaves.ts";
import { checkLine, type Run } from "./runs.ts";
import { type OnRefused, type RunResult, RunTaker } from "./take-run.ts";
import { checkpointKeys } from "./tree-head.ts";
import { collectLiveFiles, nameHistory, writeHistory, writeLiveTable, writeView } from "./view.ts";
import type { Witnesses } from "./witnesses.ts";
import { collectIndexTables, collectPartials, putPacked } from "./writes.ts";

export interface PublisherOptions {
  privateStore: Store;
  publicStore: Store;
  signers: PublisherSigners;
  clock: Clock;
  /** Name of the log: the base address without its scheme. */
  origin: string;
  /** Number of partitions of the event log. */
  partitions: number;
  logger: Logger;
  metrics: Metrics;
  /** Reads the newest block of the payment chain; null when no node answers. Not called in simulated time. */
  chainTime?: () => Promise<ChainTime | null>;
  /** Names this process in the generations (extensions of the log) that it wins (default: a random name). */
  writer?: string;
  /** True: the record is made in simulated time, which every checkpoint states. */
  simulatedTime?: boolean;
  /** Witnesses (services that cosign checkpoints) that others run (default: none). */
  witnesses?: Witnesses | undefined;
}

/**
 * The only writer of the published tree. Calls run one after the other; each first finishes the publication that a
 * crashed publisher began.
 * Leaves (log entries) that the log holds already are left out, so any call may be repeated after a failure. Every
 * method that reads or writes a store may throw ClockRefused, Fork, PublicConflict, BadPrivateObject, MissingObject,
 * Tampered, and what a store throws.
 */
export class Publisher implements PublishedRecord {
  readonly #options: PublisherOptions;
  readonly #committer: Committer;
  readonly #runs: RunTaker;
  /**
   * Draft of the leaf that names a new index. It is published together with the next leaves, since an index alone
   * does not cause a publication.
   */
  #indexDraft: Draft | null = null;

  constructor(options: PublisherOptions) {
    this.#options = options;
    const { privateStore, publicStore, clock, origin, logger, metrics, chainTime, simulatedTime } = options;
    const writer = options.writer ?? randomBytes(8).toString("hex");
    const keys = checkpointKeys(origin, options.signers);
    this.#committer = new Committer({
      privateStore,
      publicStore,
      keys,
      origin,
      clock,
      logger,
      metrics,
      writer,
      chainTime,
      simulatedTime,
      witnesses: options.witnesses,
    });
    this.#runs = new RunTaker({
      privateStore,
      commit: (plan) => this.#commit(plan),
      readState: () => this.#committer.readState(),
      partitions: options.partitions,
      cardSignerAt: (fold, at) => this.#cardSignerAt(fold, at),
      clocks: { clock, ...(chainTime ? { chainTime } : {}) },
      logger,
      metrics,
    });
  }

  /**
   * Finishes the publication that a crashed publisher began, and reads everything published, as every other call does
   * first.
   */
  async start(): Promise<void> {
    await this.#committer.readState();
  }

  /** Reads new leaves of other publishers and writes nothing, so that {@link start} has little left to read. */
  follow(): Promise<void> {
    return this.#committer.follow();
  }

  /** The state computed from all published leaves. It changes in place with every publication. */
  get fold(): PublishedFold {
    return this.#committer.fold;
  }

  /** Reads what other publishers have published, then returns the fold. */
  async current(): Promise<PublishedFold> {
    return (await this.#committer.readState()).fold;
  }

  /**
   * Writes a zstd file that a leaf will name, or adopts a file with the same unpacked content.
   * @returns the stored bytes
   */
  putEvidence(key: string, bytes: Uint8Array): Promise<Uint8Array> {
    return putPacked(this.#options.publicStore, key, bytes);
  }

  /**
   * Publishes the evidence of ended days, in order; publishes none if another publisher has closed one of the days
   * first.
   */
  publishDayCloses(closes: readonly DayClose[]): Promise<CommitResult> {
    return this.#commit((state) => planDayCloses(state, closes));
  }

  /**
   * Publishes archive files in one generation, except those of a subject and day that another publisher filed
   * meanwhile.
   */
  publishFilings(filings: readonly Filing[]): Promise<CommitResult> {
    return this.#commit((state) => planFilings(state, filings));
  }

  /** Publishes leaves, except those that the log has already. */
  publishLeaves(drafts: readonly Draft[]): Promise<CommitResult> {
    return this.#commit(({ fold }) => ({ groups: newDraftsOf(fold, drafts).map((draft) => [draft]) }));
  }

  /**
   * Publishes the hashes of a day's plan; `opens` reveals the salt (hex) of a day that is over. Nothing is published if
   * the log has the hashes and that salt already.
   */
  publishSchedule(schedule: Omit<Draft & { kind: "schedule" }, "kind">): Promise<CommitResult> {
    return this.publishLeaves([{ kind: "schedule", ...schedule }]);
  }

  /**
   * Publishes the list of public keys if it changed. It is signed with one of our cards keys that the previous list
   * declares valid.
   * @throws Failure `keys` when none of ours is valid there
   */
  async publishKeys(jwks: Jwks): Promise<void> {
    const { publicStore, signers, clock } = this.#options;
    // If a publisher died after writing keys document n, the first round publishes n and the second ours as n + 1.
    for (let round = 0; round < 2; round++) {
      const { fold } = await this.#committer.readState();
      const draft = await writeKeys(publicStore, fold, jwks, signers, clock.now());
      if (!draft) return;
      await this.publishLeaves([draft]);
    }
  }

  /**
   * Publishes the cards (endpoints' grades) of a run, the result of one grading, that differ from the published ones,
   * and its corrections together with the cards that they change. The run need not be in the store, so its lines are
   * checked here as `readRun` checks those of a stored run.
   * @throws ZodError, or Error naming the endpoint, for an invalid line
   */
  async takeRun(run: Run): Promise<RunResult> {
    return this.#runs.take({ ...run, lines: run.lines.map(checkLine) });
  }

  /** Publishes, in order, every run in the private store after the last one that was published. */
  takeNewRuns(onRefused?: OnRefused): Promise<RunResult[]> {
    return this.#runs.takeNew(onRefused);
  }

  /**
   * Writes the market index of the present state; its leaf is published with the next leaves.
   * @throws Failure `keys` when none of our cards keys is valid at the time of the newest leaf, which is the index's
   */
  async buildIndex(): Promise<void> {
    const { fold } = await this.#committer.readState();
    const cardSigner = await this.#cardSignerAt(fold, fold.newest);
    if (!cardSigner) throw new Failure("keys", `none of our cards keys is valid at ${fold.newest}, the index's time`);
    this.#indexDraft = (await writeIndex(this.#options.publicStore, fold, cardSigner)) ?? this.#indexDraft;
  }

  /** Signs the checkpoint again, for freshness: at least every 10 minutes (publication.md, Promises). */
  refreshCheckpoint(): Promise<void> {
    return this.#committer.refresh();
  }

  /**
   * Writes one file of a partition's volatile table, which has the facts that change more often than cards.
   * @returns its key, for the next view
   */
  writeLiveTable(partition: number, bytes: Uint8Array): Promise<string> {
    return writeLiveTable(this.#options.publicStore, this.#options.clock, partition, bytes);
  }

  /**
   * Replaces the view, the object from which serving learns the files to load: the newest index, and these volatile
   * tables with the event-log offsets up to which they were computed.
   */
  async writeView(tables: Pick<View, "live" | "positions">): Promise<View> {
    const { fold } = await this.#committer.readState();
    const at = this.#options.clock.now().toISOString();
    const view: View = { v: 1, at, index: fold.index?.key ?? null, tree_size: fold.size, ...tables };
    await writeView(this.#options.publicStore, view);
    return view;
  }

  /** Writes the chart data of one bucket (a fixed share of all endpoints). @returns its key, for {@link nameHistory} */
  writeHistory(bucket: number, bytes: Uint8Array): Promise<string> {
    return writeHistory(this.#options.publicStore, this.#options.clock, bucket, bytes);
  }

  /** Replaces the chart files that the view names. @returns false when there is no view yet */
  nameHistory(history: HistoryNames): Promise<boolean> {
    return nameHistory(this.#options.publicStore, history);
  }

  /**
   * Deletes expired objects: partial tiles and Parquet files of indexes after 48 h, volatile tables and chart files
   * after an hour.
   * @param keysInUse files under `live/` that are in use although no view names them yet
   * @returns how many objects were deleted
   */
  async collectGarbage(keysInUse: Iterable<string> = []): Promise<number> {
    const { publicStore, clock } = this.#options;
    const { fold } = await this.#committer.readState();
    const deletedTables = await collectIndexTables(publicStore, clock, fold.index?.table);
    return (
      deletedTables +
      (await collectPartials(publicStore, clock)) +
      (await collectLiveFiles(publicStore, clock, keysInUse))
    );
  }

  /** Finds the newest of our cards keys that the newest published keys document declares valid at a time; else null. */
  async #cardSignerAt(fold: PublishedFold, at: string): Promise<Signer | null> {
    const { publicStore, signers } = this.#options;
    return cardSignerAt(await readNewestKeys(publicStore, fold), signers, at);
  }

  #commit(plan: Parameters<Committer["commit"]>[0]): Promise<CommitResult> {
    return this.#committer.commit(async (state) => {
      const planned = await plan(state);
      const indexGroup = this.#indexDraft ? newDraftsOf(state.fold, [this.#indexDraft]) : [];
      return planned.groups.length && indexGroup.length
        ? { ...planned, groups: [...planned.groups, indexGroup] }
        : planned;
    });
  }
}

/** @see Publisher */
export const createPublisher = (options: PublisherOptions): Publisher => new Publisher(options);
