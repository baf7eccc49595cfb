import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Store } from "../../infra/store/store.ts";
import { type Checkpoint, openCheckpoint } from "../../infra/tree/checkpoint.ts";
import { BadNote } from "../../infra/tree/note.ts";
import { Unwitnessed } from "../../infra/tree/policy.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { checkAge } from "../mirror/state.ts";
import { headOfNote } from "../published/equivocation.ts";
import { Rollback, Unproven } from "../published/errors.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { RecordReader } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import type { GivenKeys } from "../published/trust.ts";
import { digestOf, type Fork, History } from "./history.ts";
import { type FoundName, readNewLeaves } from "./names.ts";
import { type Peer, pullPeer } from "./peers.ts";
import type { KeptCheckpoint, MonitorState, WatchedName } from "./state.ts";
import { MonitorTrust } from "./trust.ts";
import type { Webhook } from "./webhook.ts";

/** Pause after the first failure of a peer or of the webhook, ms. */
const FIRST_PAUSE_MS = 30_000;

export interface MonitorParts {
  state: MonitorState;
  /** Folder of the equivocation files. */
  files: Store;
  /** The addresses at which one log is read. */
  sources: readonly Source[];
  peers: readonly Peer[];
  names: readonly WatchedName[];
  webhook: Webhook | null;
  keys: GivenKeys;
  /**
   * Greatest accepted age of a checkpoint's cosignature, seconds; 0 accepts any. Default: a day if a witness is
   * trusted.
   */
  maxAgeSeconds?: number | undefined;
  clock: Clock;
  /** Called with messages for the operator. */
  say: (text: string) => void;
  /** Prints a notice, and resolves after it was handed to the operating system. */
  tell: (notice: Record<string, unknown>) => Promise<void>;
}

/** Result of one round. */
export interface RoundResult {
  /** The proven tree head, or null before the first. */
  head: { size: number; root: string } | null;
  /** Number of checkpoints that were new in this round. */
  newCheckpoints: number;
  /** Number of notices that were printed. */
  noticesPrinted: number;
  /** Forks that were found in this round. */
  forks: Fork[];
  /** The endpoints that match names which this monitor has not watched before. */
  foundNames: FoundName[];
  /** Faults of the log or of all its addresses, the most serious first. */
  faults: Failure[];
  /** Faults of a peer, or of one address while another address answers. */
  warnings: Failure[];
}

/** A checkpoint that a source showed in a round. */
interface ShownCheckpoint {
  source: Source;
  /** null if the checkpoint was refused although the log signed it (`#keepRefused` lists the reasons). */
  checkpoint: Checkpoint | null;
  size: number;
  /** sha256 of the checkpoint's signed text. */
  digest: Buffer;
}

/** Codes of failures, the most serious first. All other codes follow. */
const CODES_BY_GRAVITY = ["fork", "unproven", "tampered", "unwitnessed", "stale", "rollback"];
const gravityOf = ({ code }: Failure): number =>
  (CODES_BY_GRAVITY.indexOf(code) + CODES_BY_GRAVITY.length + 1) % (CODES_BY_GRAVITY.length + 1);

/**
 * Follows one log at several addresses, together with other monitors (peers), and reports changes (docs/monitor.md).
 * Each round fetches the checkpoints of every source and every peer, stores them, tries to prove them, reads the new
 * leaves for the watched names, and delivers the waiting notices. The process may be killed at any moment: stored
 * checkpoints stay, and the next round delivers the notices that were not delivered.
 */
export class Monitor {
  readonly #history: History;
  readonly #trust: MonitorTrust;

  constructor(private readonly parts: MonitorParts) {
    const { state, files, clock, webhook, keys, say } = parts;
    this.#history = new History({ state, files, clock, post: webhook !== null });
    this.#trust = new MonitorTrust(state, keys, clock, say);
    if (!webhook) state.dropPostings();
  }

  /** Origin of the log; null before the first checkpoint. */
  get origin(): string | null {
    return this.#trust.anyKeyTrust?.log.name ?? null;
  }

  /**
   * Runs one round.
   * @returns its result, even if sources, peers or the webhook failed
   * @throws faults of our own disk, and Failure `usage`
   */
  async runRound(): Promise<RoundResult> {
    const { state, sources } = this.parts;
    const [faults, warnings]: [Failure[], Failure[]] = [[], []];
    const lastKeptBefore = state.readPage(null, 1)[0]?.n ?? 0;
    const headBefore = state.readHead();
    const shownCheckpoints = await this.#askSources(faults, warnings);
    const answeringSources = sources.filter((source) => shownCheckpoints.some((one) => one.source === source));
    await this.#askPeers(warnings);
    const forks = await this.#history.proveOrRefute(
      answeringSources,
      shownCheckpoints.map(({ digest }) => digest),
      this.#mayLead,
    );
    const head = state.readHead();
    if (head && head.n !== headBefore?.n) await this.#trust.followDocuments(answeringSources, head);
    this.#findFaults(shownCheckpoints, headBefore, faults);
    const foundNames = await this.#readNewLeaves(answeringSources, faults);
    const noticesPrinted = await this.#sendNotices(faults);
    return {
      head: head && { size: head.size, root: head.root.toString("hex") },
      newCheckpoints: (state.readPage(null, 1)[0]?.n ?? 0) - lastKeptBefore,
      ...{ noticesPrinted, forks, foundNames },
      faults: faults.sort((a, b) => gravityOf(a) - gravityOf(b)),
      warnings,
    };
  }

  /**
   * Fetches the checkpoints of all sources at the same time and stores them. A source that does not answer is a fault
   * only if no source shows a checkpoint that the log signed.
   * @returns the checkpoints that the log signed, including refused ones
   */
  async #askSources(faults: Failure[], warnings: Failure[]): Promise<ShownCheckpoint[]> {
    const { sources } = this.parts;
    const unreachable: Failure[] = [];
    const answers = await Promise.all(
      sources.map(async (source) => {
        try {
          const bytes = await source.get(CHECKPOINT, MAX_BYTES.note);
          if (!bytes) throw new MissingObject(CHECKPOINT);
          return [{ source, bytes }];
        } catch (error) {
          unreachable.push(failureOf(error, source));
          return [];
        }
      }),
    );
    const shownCheckpoints: ShownCheckpoint[] = [];
    // Not at the same time, since verifying the first checkpoint may pin the keys that verify the others.
    for (const { source, bytes } of answers.flat()) {
      try {
        const checkpoint = await this.#trust.open(source, bytes);
        const isNew = this.#history.keepCheckpoint(bytes, this.#trust.anyKeyTrust!, source.name);
        if (!isNew) this.#refreshNote(bytes);
        shownCheckpoints.push({ source, checkpoint, size: checkpoint.size, digest: digestOf(bytes) });
      } catch (error) {
        faults.push(failureOf(error, source));
        if (!this.#keepRefused(source, bytes)) continue;
        shownCheckpoints.push({ source, checkpoint: null, size: headOfNote(bytes).size, digest: digestOf(bytes) });
      }
    }
    (shownCheckpoints.length > 0 ? warnings : faults).push(...unreachable);
    return shownCheckpoints;
  }

  /**
   * Stores a refused checkpoint if the log signed it, since it may prove a fork. Such a checkpoint was refused, for
   * example, because only a retired key of the log signed it, the log's own witness did not cosign it, a cosignature is
   * of the future, or too few witnesses of the policy cosigned it.
   * @returns false if the log did not sign it, or too many unproven checkpoints are stored
   */
  #keepRefused(source: Source, bytes: Uint8Array): boolean {
    const trust = this.#trust.anyKeyTrust;
    if (!trust) return false;
    try {
      this.#history.keepCheckpoint(bytes, trust, source.name);
      return true;
    } catch (error) {
      if (error instanceof Failure) return false;
      throw error;
    }
  }

  /**
   * Replaces the stored note with this text by the given note, if enough witnesses cosigned the given note and too few
   * cosigned the stored one.
   */
  #refreshNote(bytes: Uint8Array): void {
    const { state } = this.parts;
    const digest = digestOf(bytes);
    const keptNote = state.noteOf(digest);
    if (keptNote && !this.#mayLead(keptNote) && this.#mayLead(Buffer.from(bytes)))
      state.replaceNote(digest, Buffer.from(bytes));
  }

  /**
   * Returns whether the log's own witness, if one is pinned, and enough witnesses of the policy cosigned this note for
   * its checkpoint to become the proven head.
   */
  #mayLead = (note: Buffer): boolean => {
    try {
      openCheckpoint(note, { ...this.#trust.currentTrust!, ...this.#trust.anyKeyTrust! }, this.parts.clock.now());
      return true;
    } catch (error) {
      if (error instanceof Unwitnessed || error instanceof BadNote) return false;
      throw error;
    }
  };

  async #askPeers(warnings: Failure[]): Promise<void> {
    const { peers, state, clock } = this.parts;
    const trust = this.#trust.anyKeyTrust;
    if (!trust) return;
    for (const peer of peers) {
      if (!peer.isDue(clock.monotonic())) continue;
      try {
        await pullPeer(peer, { state, history: this.#history, origin: trust.log.name, trust });
        peer.recordSuccess();
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        peer.recordFailure(clock.monotonic(), FIRST_PAUSE_MS);
        // A peer that is down or sends false data proves nothing about the log, so this is only a warning.
        warnings.push(new Failure("failed", `peer ${error.message}`, { cause: error, retriable: true }));
      }
    }
  }

  /**
   * Finds faults of the log and of its addresses. Called after the round has proven every checkpoint that it can.
   * @param headBefore the proven head before the sources were asked. A source that shows fewer leaves than a newer head
   * is not rolled back: a peer may have sent the checkpoint of that head after the source had answered
   */
  #findFaults(
    shownCheckpoints: readonly ShownCheckpoint[],
    headBefore: KeptCheckpoint | null,
    faults: Failure[],
  ): void {
    const { state, clock, maxAgeSeconds, sources } = this.parts;
    const forkedCount = state.count("forked");
    if (forkedCount > 0) {
      const says = `the log signed two histories: ${forkedCount} of its checkpoints contradict others`;
      faults.push(new Failure("fork", says));
    }
    for (const code of ["unproven", "failed"] as const) {
      const { many, first } = state.countUnexplained(code === "failed");
      if (!first) continue;
      const why = `one of ${first.size} leaves, from ${first.source}: ${first.why ?? "not tried yet"}`;
      const says = `${many} signed checkpoints are not proven; ${why}`;
      faults.push(new Failure(code, says, { retriable: code === "failed" }));
    }
    const largest = shownCheckpoints.reduce((size, one) => Math.max(size, one.size), -1);
    if (headBefore && shownCheckpoints.length === sources.length && largest < headBefore.size)
      faults.push(new Rollback(headBefore.size, largest));
    const [newest] = shownCheckpoints
      .flatMap(({ checkpoint }) => (checkpoint ? [checkpoint] : []))
      .sort((a, b) => (b.cosignedAt?.getTime() ?? 0) - (a.cosignedAt?.getTime() ?? 0));
    if (!newest) return;
    try {
      checkAge(newest, clock, maxAgeSeconds);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      faults.push(error);
    }
  }

  /** Reads the leaves below the proven head that were not read yet for the watched names. */
  async #readNewLeaves(answeringSources: readonly Source[], faults: Failure[]): Promise<FoundName[]> {
    const { state, names, webhook } = this.parts;
    const head = state.readHead();
    if (!head || names.length === 0) return [];
    const errors: Failure[] = [];
    for (const source of answeringSources) {
      const leaves = async function* (from: number) {
        // When all leaves are read, segments are used: one request fetches 65,536 leaves.
        if (from === 0) return yield* readProvenLeaves(source, head);
        const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
        yield* reader.leaves(from);
      };
      try {
        const log = this.origin!;
        return await readNewLeaves({ state, log, post: webhook !== null, leaves, size: head.size }, names);
      } catch (error) {
        if (error instanceof Failure && error.code === "usage") throw error;
        errors.push(failureOf(error, source));
      }
    }
    // The errors are reported only if no source served the leaves.
    faults.push(...errors);
    return [];
  }

  /** Prints the waiting notices, then posts them to the webhook. @returns how many were printed */
  async #sendNotices(faults: Failure[]): Promise<number> {
    const { state, webhook, tell } = this.parts;
    let printedCount = 0;
    for (let after = 0; ; ) {
      const waitingNotices = state.listNotices(100, after);
      if (waitingNotices.length === 0) break;
      after = waitingNotices.at(-1)!.n;
      for (const { n, body } of waitingNotices.filter(({ printed }) => !printed)) {
        await tell(JSON.parse(body) as Record<string, unknown>);
        state.markDelivered(n, "printed");
        printedCount++;
      }
    }
    try {
      await webhook?.post(state, FIRST_PAUSE_MS);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      faults.push(error);
    }
    return printedCount;
  }
}

/**
 * Converts an error into a Failure that names the source.
 * @throws faults of our own
 */
function failureOf(error: unknown, source: Source): Failure {
  if (error instanceof BadNote)
    return new Unproven(CHECKPOINT, `a checkpoint that ${source.name} may show`, error.message);
  if (!(error instanceof Failure)) throw error;
  if (error.code === "usage") throw error;
  return new Failure(error.code, `${source.name}: ${error.message}`, { cause: error, retriable: error.retriable });
}
