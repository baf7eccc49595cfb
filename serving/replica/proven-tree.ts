import { join } from "node:path";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { openProcessLock, type ProcessLock } from "../../infra/store/lock.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import type { MirrorSummary } from "../../pipelines/mirror/run.ts";
import { MirrorState } from "../../pipelines/mirror/state.ts";
import { jwksOf, readKeys } from "../../pipelines/published/keys.ts";
import { PublishedTree, type Snapshot } from "../../pipelines/published/reader.ts";
import type { Source } from "../../pipelines/published/source.ts";
import { type GivenKeys, trustOfPins } from "../../pipelines/published/trust.ts";

export interface ProvenTreeParts {
  source: Source;
  /**
   * Folder of the mirror: the objects in `public`, the mirror's own state in `state`, and the lock of the keeper (the
   * process that updates the mirror). Processes of one machine may share the folder.
   */
  dir: string;
  /** Name of the log that this replica must answer from. */
  origin: string;
  /** Keys of the log that the operator gave. */
  keys: GivenKeys;
  /** Largest age of a checkpoint's newest cosignature, seconds; by default any. */
  maxAge?: number | undefined;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
}

/**
 * The published tree of a replica: a mirror on its own disk. Among processes that share the folder one is the keeper,
 * which copies the source and verifies it; when it dies, another becomes the keeper at its next run. All of them read
 * only the verified snapshot.
 */
export class ProvenTree {
  #jwks: Jwks | null = null;
  #tree: PublishedTree | null = null;
  /** The pinned keys that `#tree` trusts, as JSON text, compared to detect changes. */
  #trustText = "";
  /** Whether {@link newest} has returned once. */
  #hasLoaded = false;

  private constructor(
    private readonly parts: ProvenTreeParts,
    readonly store: Store,
    private readonly stateStore: Store,
    private readonly keeperLock: ProcessLock,
  ) {}

  /** Opens the mirror in a folder. */
  static async open(parts: ProvenTreeParts): Promise<ProvenTree> {
    const store = await openDirectoryStore(join(parts.dir, "public"));
    const stateStore = await openDirectoryStore(join(parts.dir, "state"));
    return new ProvenTree(parts, store, stateStore, openProcessLock(join(parts.dir, "keeper.sqlite")));
  }

  /** The keys document of the newest verified snapshot, or null before the first. */
  get jwks(): Jwks | null {
    return this.#jwks;
  }

  /**
   * Brings the mirror up to date if this process is the keeper.
   * @returns null when another process is the keeper
   * @throws errors of `mirrorOnce`; the snapshot does not change
   */
  async follow(): Promise<MirrorSummary | null> {
    const { source, keys, maxAge, clock, logger, metrics } = this.parts;
    if (!this.keeperLock.tryAcquire()) return null;
    const summary = await mirrorOnce({
      ...{ source, clock, publicStore: this.store, stateStore: this.stateStore, keys },
      // Without a limit on its age an old record is still served: answers show how old it is.
      maxAgeSeconds: maxAge ?? 0,
      say: (text) => logger.info(text),
    });
    metrics.count("touchstone_replica_runs_total", { result: summary.result });
    return summary;
  }

  /**
   * Returns the newest verified snapshot, or null before the first. The first call returns the snapshot on disk even
   * when the source fails; later calls throw the source's failure, so that /readyz reports it.
   * @throws Failure `usage` for a mirror of another log, and errors of `follow` and `PublishedTree`
   */
  async newest(): Promise<Snapshot | null> {
    const failure = await this.follow().then(
      () => null,
      (error: unknown) => ({ error }),
    );
    if (failure && this.#hasLoaded) throw failure.error;
    const snapshot = await this.#readSnapshot();
    if (failure && !snapshot) throw failure.error;
    if (failure)
      this.parts.logger.warn({ err: failure.error }, "the source cannot be read; answering from the copy on disk");
    this.#hasLoaded = true;
    return snapshot;
  }

  async close(): Promise<void> {
    this.keeperLock.close();
    await this.store.close();
    await this.stateStore.close();
  }

  async #readSnapshot(): Promise<Snapshot | null> {
    const state = new MirrorState(this.stateStore);
    const [pins, commit] = [await state.readPins(), await state.readCommit()];
    if (!pins || !commit) return null;
    const trustText = JSON.stringify(pins);
    const trust = { ...trustOfPins(pins), policy: this.parts.keys?.policy };
    if (trust.log.name !== this.parts.origin) {
      throw new Failure("usage", `the record is that of ${trust.log.name}, and base_url says ${this.parts.origin}`);
    }
    if (this.#tree && trustText !== this.#trustText) this.#tree.setTrust(trust);
    this.#tree ??= new PublishedTree(this.store, trust);
    this.#trustText = trustText;
    const document = commit.keys && (await readKeys(this.store, commit.keys));
    if (document) this.#jwks = jwksOf(document);
    return this.#tree.newest();
  }
}
