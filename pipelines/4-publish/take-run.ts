import { Failure } from "../../infra/errors.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { RunHeader, RunLine } from "../record/card.ts";
import { type Clocks, isAhead } from "./clocks.ts";
import type { CommitResult, Planner, PublishedState, TakenRun } from "./committer.ts";
import { BadPrivateObject, mergePositions } from "./generation.ts";
import { newDraftsOf, relatedPartyDrafts } from "./known.ts";
import { type Run, type RunDrafts, readRun } from "./runs.ts";
import { type CorrectionDraft, type TakeResult, takeLines } from "./take-lines.ts";

export interface RunResult {
  /** Number of the run. */
  n: number;
  /**
   * False when the run was refused (for the reasons that `#whyRefused` lists) or cannot be read. Nothing of it is
   * published then, and its cards are lost, so its grader has to grade everything again. Also false in a report of
   * refused lines ({@link OnRefused}), whatever is published of the other lines.
   */
  taken: boolean;
  /** Why the run or some of its lines were refused, in words; null in the result of a taken run. */
  reason: string | null;
  /** Number of cards that were signed and published. */
  cards: number;
  /** Number of leaves that were published. */
  leaves: number;
  /** Number of lines that are not newer than the published cards of their endpoint. */
  stale: number;
}

/** Called with each refused run, and with each refusal of some lines of a run. */
export type OnRefused = (result: RunResult) => Promise<unknown>;

export interface RunTakerOptions {
  privateStore: Store;
  commit: (plan: Planner) => Promise<CommitResult>;
  readState: () => Promise<PublishedState>;
  partitions: number;
  /** Finds the cards key of ours that the newest published keys document declares valid at a time; null for none. */
  cardSignerAt: (fold: PublishedFold, at: string) => Promise<Signer | null>;
  clocks: Clocks;
  logger: Logger;
  metrics: Metrics;
}

/** How often a run is read before it counts as unreadable, since a bit may have been flipped in transfer. */
const MAX_READS = 3;

/**
 * Largest number of lines of a run that go into one generation (extension of the log), which bounds the memory for runs
 * of any size.
 */
const SLICE_LINES = 1_000;

/** Publishes runs (each the result of one grading) in the order of their numbers, and remembers the next number. */
export class RunTaker {
  /** Newest run that this process took; null before the first. The newest generation may name another publisher's. */
  #newestTaken: TakenRun | null = null;
  /** Number of the next run to read, also after refused and unreadable runs. */
  #nextRun = 0;

  constructor(private readonly options: RunTakerOptions) {}

  /** Publishes one run. @param onRefused called for lines that are refused, before the run is recorded as taken */
  async take(run: Run, onRefused: OnRefused = async () => undefined): Promise<RunResult> {
    const { header } = run;
    const result = createUntakenResult(header.n, null);
    result.reason = await this.#whyRefused(header, await this.options.readState());
    if (result.reason) {
      this.options.logger.warn({ run: header.n, reason: result.reason }, "a run was not taken");
      this.options.metrics.count("touchstone_runs_refused_total");
      return result;
    }
    const { standaloneDrafts, corrections } = splitDrafts(run.drafts ?? []);
    if (standaloneDrafts.length > 0)
      await this.options.commit(({ fold }) => ({
        groups: newDraftsOf(fold, standaloneDrafts).map((draft) => [draft]),
      }));
    const remaining = new Set(corrections);
    for (let start = 0; start === 0 || start < run.lines.length; start += SLICE_LINES) {
      const lines = run.lines.slice(start, start + SLICE_LINES);
      const isLast = start + SLICE_LINES >= run.lines.length;
      const caps = new Set(lines.map((line) => line.cap));
      const ownCorrections = [...remaining].filter((draft) => caps.has(draft.capability_id));
      for (const draft of ownCorrections) remaining.delete(draft);
      await this.#takeSlice(
        run,
        { lines, corrections: ownCorrections, standaloneCorrections: isLast ? [...remaining] : [], isLast },
        result,
        onRefused,
      );
    }
    this.#newestTaken = {
      ...takenRunOf(header),
      positions: mergePositions(this.#newestTaken?.positions ?? {}, header.positions),
    };
    this.#nextRun = Math.max(this.#nextRun, header.n + 1);
    return { ...result, taken: true };
  }

  async #takeSlice(
    { header }: Run,
    { lines, corrections, standaloneCorrections, isLast }: Slice,
    result: RunResult,
    onRefused: OnRefused,
  ): Promise<void> {
    const { partitions, cardSignerAt, metrics } = this.options;
    let takeResult: TakeResult | null = null;
    const committed = await this.options.commit(async (state) => {
      // Null only if another publisher has published a keys document since `take`. The next attempt refuses the run.
      const cardSigner = await cardSignerAt(state.fold, header.now);
      if (!cardSigner) throw new Failure("keys", noValidKey(header));
      const onSigned = () => metrics.count("touchstone_cards_signed_total");
      takeResult = await takeLines(state, header, lines, corrections, { partitions, cardSigner, onSigned });
      if (takeResult.earlyCaps.length > 0) await this.#refuseEarly(result, takeResult.earlyCaps, onRefused);
      // A correction of an endpoint without a line is published alone. The run had read it, so it changed no card.
      const groups = [...takeResult.groups, ...newDraftsOf(state.fold, standaloneCorrections).map((draft) => [draft])];
      if (!isLast) return { groups };
      const changes = relatedPartyDrafts(state.fold, header, partitions);
      return { groups: changes.length > 0 ? [...groups, changes] : groups, taken: takenRunOf(header) };
    });
    const { cards: publishedCards, stale } = takeResult!;
    result.cards += publishedCards;
    result.leaves += committed.leaves;
    result.stale += stale;
  }

  /**
   * Reports lines of a run whose time is too early. It does so before the run is recorded as taken, so that a crash
   * cannot lose the report.
   */
  async #refuseEarly(result: RunResult, earlyCaps: readonly string[], onRefused: OnRefused): Promise<void> {
    const reason = `its moment is not past that of published cards, of ${earlyCaps.length} endpoints such as ${earlyCaps[0]}`;
    this.options.logger.warn({ run: result.n, reason }, "lines of a run were not taken");
    this.options.metrics.count("touchstone_runs_refused_total");
    await onRefused({ ...result, reason });
  }

  /** Publishes all new runs. @param onRefused called for each run with refused parts, before the next run is read */
  async takeNew(onRefused: OnRefused = async () => undefined): Promise<RunResult[]> {
    const results: RunResult[] = [];
    const { generation } = await this.options.readState();
    for (let n = Math.max(this.#nextRun, (generation?.run ?? -1) + 1); ; n++) {
      const run = await this.#readRun(n);
      if (!run) return results;
      const result =
        run instanceof BadPrivateObject ? createUntakenResult(n, run.message) : await this.take(run, onRefused);
      if (!result.taken) await onRefused(result);
      results.push(result);
      this.#nextRun = n + 1;
    }
  }

  /**
   * Reads run n; null when there is none yet. Returns the error of an unreadable run after {@link MAX_READS} attempts.
   */
  async #readRun(n: number): Promise<Awaited<ReturnType<typeof readRun>> | BadPrivateObject> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await readRun(this.options.privateStore, n);
      } catch (error) {
        if (!(error instanceof BadPrivateObject)) throw error;
        if (attempt < MAX_READS) continue;
        this.options.logger.error({ err: error }, "a run cannot be read and is left out");
        this.options.metrics.count("touchstone_runs_unreadable_total");
        return error;
      }
    }
  }

  /**
   * Returns why a run is not taken, or null. A run is refused if it names an unknown table of related parties, if none
   * of our cards keys was valid at its time, if it was read from another event log, or has read less of a partition
   * than a run that was taken. Partitions that it does not name are not compared, since each grader grades only the
   * partitions that it owns. A run whose time is ahead of our clock is refused too: published cards of a later time
   * would make every run before that time stale.
   * @throws ClockRefused when a run's time is ahead of our clock and our clock is the wrong one
   */
  async #whyRefused(header: RunHeader, { generation, fold }: PublishedState): Promise<string | null> {
    if (!fold.relatedParties.has(header.kin_sha256))
      return `the tree names no table of related parties ${header.kin_sha256}`;
    if (await isAhead(this.options.clocks, generation, header.now))
      return `its time ${header.now} is ahead of the publisher's clock`;
    if (!(await this.options.cardSignerAt(fold, header.now))) return noValidKey(header);
    const takenRuns = [this.#newestTaken, generation?.log ? takenRunOfGeneration(generation) : null].filter(
      (taken) => taken !== null,
    );
    const partitions = new Set(Object.values(header.positions).flatMap((offsets) => Object.keys(offsets)));
    for (const { log, positions } of takenRuns) {
      if (log !== header.log) return `it read log ${header.log}, the last one read ${log}`;
      for (const [topic, offsets] of Object.entries(positions)) {
        for (const [partition, next] of Object.entries(offsets)) {
          const offset = header.positions[topic]?.[partition] ?? 0;
          if (partitions.has(partition) && offset < next) return `behind in ${topic}/${partition}: ${offset} < ${next}`;
        }
      }
    }
    return null;
  }
}

const noValidKey = ({ now }: RunHeader): string => `none of our cards keys is valid at ${now}, the time of its cards`;

const createUntakenResult = (n: number, reason: string | null): RunResult => ({
  n,
  taken: false,
  reason,
  cards: 0,
  leaves: 0,
  stale: 0,
});

/**
 * Some neighbouring lines of a run, with the run's corrections of their endpoints. `standaloneCorrections`: those of
 * endpoints without a line in the run, which are published with the last slice (`isLast`).
 */
interface Slice {
  lines: readonly RunLine[];
  corrections: readonly CorrectionDraft[];
  standaloneCorrections: readonly CorrectionDraft[];
  isLast: boolean;
}

/** Splits drafts into those published alone, and corrections that are published with the cards that they change. */
function splitDrafts(drafts: RunDrafts) {
  const isStandalone = ({ kind }: RunDrafts[number]): boolean =>
    kind === "listing" || kind === "delisting" || kind === "commitment" || kind === "receipt";
  return {
    standaloneDrafts: drafts.filter(isStandalone),
    corrections: drafts.filter((draft) => !isStandalone(draft)) as CorrectionDraft[],
  };
}

const takenRunOf = (header: RunHeader): TakenRun => ({ run: header.n, log: header.log, positions: header.positions });

const takenRunOfGeneration = (generation: NonNullable<PublishedState["generation"]>): TakenRun => ({
  run: generation.run ?? -1,
  log: generation.log!,
  positions: generation.positions,
});
