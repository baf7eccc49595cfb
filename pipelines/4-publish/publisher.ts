import { randomBytes } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { HistoryNames } from "../record/history.ts";
import type { View } from "../record/volatile.ts";
import type { ChainTime } from "./clocks.ts";
import { type Committed, Committer } from "./committer.ts";
import { type DayClose, type Filing, planDayCloses, planFilings } from "./filings.ts";
import type { PublishedRecord } from "./followed.ts";
import { writeIndex } from "./index-build.ts";
import { newestKeys, type PublisherSigners, vouching, writeKeys } from "./keys.ts";
import { unknownDrafts } from "./known.ts";
import type { Draft } from "./leaves.ts";
import { checkLine, type Run } from "./runs.ts";
import { type OnRefused, type RunResult, RunTaker } from "./take-run.ts";
import { checkpointKeys } from "./tree-head.ts";
import { collectLive, nameHistory, writeHistory, writeLive, writeView } from "./view.ts";
import type { Witnesses } from "./witnesses.ts";
import { collectIndexTables, collectPartials, putPacked } from "./writes.ts";

export interface PublisherOptions {
  privateStore: Store;
  publicStore: Store;
  signers: PublisherSigners;
  clock: Clock;
  /** Name of the log: the base address without its scheme unless configured. */
  origin: string;
  /** Partitions of the event log whose positions runs carry. */
  partitions: number;
  logger: Logger;
  metrics: Metrics;
  /** Newest block of the chain we pay on; null when it cannot be asked. Not called while time is simulated. */
  chainTime?: () => Promise<ChainTime | null>;
  /** Names this process in the generations it wins (default: random). */
  writer?: string;
  /** The record's time is made up, and every checkpoint says so. */
  simulatedTime?: boolean;
  /** Witnesses that are not ours (default: none). */
  witnesses?: Witnesses | undefined;
}

/**
 * The publisher: the only writer of the tree. Calls run one after the other, and each recovers first where that is needed.
 * Leaves that the log holds already are left out, so any call may be made again after a failure.
 * Errors: ClockRefused, Fork, PublicConflict, BadPrivate, MissingObject, Tampered, and what a store throws.
 */
export class Publisher implements PublishedRecord {
  readonly #options: PublisherOptions;
  readonly #committer: Committer;
  readonly #runs: RunTaker;
  /** Rides along with the next leaves; an index alone is no reason to publish. */
  #index: Draft | null = null;

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
      before: () => this.#committer.before(),
      partitions: options.partitions,
      cards: options.signers.cards,
      logger,
      metrics,
    });
  }

  /** Recovers: finishes the generation of a writer that died, and reads what is published. Other calls recover too. */
  async start(): Promise<void> {
    await this.#committer.before();
  }

  /** Reads what another publisher publishes and writes nothing, so that {@link start} has little left to read. */
  follow(): Promise<void> {
    return this.#committer.follow();
  }

  /** What is published, folded. Changes in place with every publication. */
  get fold(): PublishedFold {
    return this.#committer.fold;
  }

  /** Returns the fold after a recovery, with what other publishers have published. */
  async current(): Promise<PublishedFold> {
    return (await this.#committer.before()).fold;
  }

  /** Write a zstd file that a leaf is to name, or adopt the one that unpacks to the same. @returns the bytes there now */
  putEvidence(key: string, bytes: Uint8Array): Promise<Uint8Array> {
    return putPacked(this.#options.publicStore, key, bytes);
  }

  /** Closings of days, whole and in order; nothing when another publisher was quicker with one of them. */
  publishDayCloses(closes: readonly DayClose[]): Promise<Committed> {
    return this.#commit((before) => planDayCloses(before, closes));
  }

  /** Files of the archive, all in one generation; none of a day that another publisher filed meanwhile. */
  publishFilings(filings: readonly Filing[]): Promise<Committed> {
    return this.#commit((before) => planFilings(before, filings));
  }

  /** Leaves as they are; those that the log has already are left out. */
  publishLeaves(drafts: readonly Draft[]): Promise<Committed> {
    return this.#commit(({ fold }) => ({ groups: unknownDrafts(fold, drafts).map((draft) => [draft]) }));
  }

  /** The commitment to a day's plan, once a day; `opens` carries the salt (hex) of a day that is over. */
  publishSchedule(schedule: Omit<Draft & { kind: "schedule" }, "kind">): Promise<Committed> {
    return this.publishLeaves([{ kind: "schedule", ...schedule }]);
  }

  /** The keys document, when it changed, signed by the cards key of ours that the one before names. The first leaf. */
  async publishKeys(jwks: Jwks): Promise<void> {
    const { publicStore, signers, clock } = this.#options;
    // Twice at most: a writer that died may have left document n, and ours is n + 1 then.
    for (let round = 0; round < 2; round++) {
      const { fold } = await this.#committer.before();
      const by = vouching(await newestKeys(publicStore, fold), signers);
      const draft = await writeKeys(publicStore, fold, jwks, by, clock.now());
      if (!draft) return;
      await this.publishLeaves([draft]);
    }
  }

  /**
   * Publishes what a run changed against what is published now, its corrections with the cards that follow from them. The run
   * need not be in the store, so its lines are checked here as `readRun` checks those of the store.
   * @throws ZodError, or Error naming the endpoint, for a line that is not as it must be
   */
  async takeRun(run: Run): Promise<RunResult> {
    return this.#runs.take({ ...run, lines: run.lines.map(checkLine) });
  }

  /** Take every run that the private store holds after the last one taken, in order. */
  takeNewRuns(onRefused?: OnRefused): Promise<RunResult[]> {
    return this.#runs.takeNew(onRefused);
  }

  /** Write the market index of what is published now; its leaf rides along with the next publication. */
  async buildIndex(): Promise<void> {
    const { fold } = await this.#committer.before();
    this.#index = (await writeIndex(this.#options.publicStore, fold, this.#options.signers.cards)) ?? this.#index;
  }

  /** Sign the checkpoint again, for freshness: at least every 10 minutes (publication.md, Promises). */
  refreshCheckpoint(): Promise<void> {
    return this.#committer.refresh();
  }

  /** Write one file of a partition's volatile table; the key goes into the next view. */
  writeLive(partition: number, bytes: Uint8Array): Promise<string> {
    return writeLive(this.#options.publicStore, this.#options.clock, partition, bytes);
  }

  /** Move the view that serving follows: the newest index, and these tables with the positions behind them. */
  async writeView(tables: Pick<View, "live" | "positions">): Promise<View> {
    const { fold } = await this.#committer.before();
    const at = this.#options.clock.now().toISOString();
    const view: View = { v: 1, at, index: fold.index?.key ?? null, tree_size: fold.size, ...tables };
    await writeView(this.#options.publicStore, view);
    return view;
  }

  /** Write one bucket's history; the key goes into {@link nameHistory}. */
  writeHistory(bucket: number, bytes: Uint8Array): Promise<string> {
    return writeHistory(this.#options.publicStore, this.#options.clock, bucket, bytes);
  }

  /** Put these history files in force. @returns false when there is no view that could name them */
  nameHistory(history: HistoryNames): Promise<boolean> {
    return nameHistory(this.#options.publicStore, history);
  }

  /**
   * Delete what has had its time: partial tiles and Parquet files of indexes after 48 h, live tables after an hour. @returns how many objects
   * @param kept live files that are in use although no view names them yet
   */
  async collectGarbage(kept: Iterable<string> = []): Promise<number> {
    const { publicStore, clock } = this.#options;
    const { fold } = await this.#committer.before();
    const tables = await collectIndexTables(publicStore, clock, fold.index?.table);
    return tables + (await collectPartials(publicStore, clock)) + (await collectLive(publicStore, clock, kept));
  }

  #commit(plan: Parameters<Committer["commit"]>[0]): Promise<Committed> {
    return this.#committer.commit(async (before) => {
      const planned = await plan(before);
      const riding = this.#index ? unknownDrafts(before.fold, [this.#index]) : [];
      return planned.groups.length && riding.length ? { ...planned, groups: [...planned.groups, riding] } : planned;
    });
  }
}

/** @see Publisher */
export const createPublisher = (options: PublisherOptions): Publisher => new Publisher(options);
