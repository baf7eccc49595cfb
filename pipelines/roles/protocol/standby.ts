import { createHash } from "node:crypto";
import type { Store } from "../../../infra/store/store.ts";
import { highestGeneration, readGeneration } from "../../4-publish/generation.ts";
import { CHECKPOINT } from "../../published/objects.ts";

/**
 * Time without a new checkpoint (signed head of the public log) after which another publisher takes over, ms. The
 * active publisher signs a checkpoint every 10 s.
 */
const TAKEOVER_MS = 30_000;

export interface StandbyParts {
  privateStore: Store;
  publicStore: Pick<Store, "head">;
  /** Returns ms of a monotonic clock. */
  monotonic: () => number;
  /**
   * Work that this publisher does first when it becomes active, such as publishing its keys. It stays inactive until
   * that work has succeeded.
   */
  start?: () => Promise<void>;
  /** Name by which this publisher is known as the writer of its generations (publications). */
  writer: string;
  /**
   * Time without a new checkpoint after which this publisher takes over, ms (default 30,000). It is multiplied by a
   * number from 1 to 2 that depends on `writer`.
   */
  takeoverMs?: number;
}

/**
 * Decides for one of several publishers whether it is active or waits. There is no lock, and two may publish at once
 * without harm: each publication is a numbered generation, and only one publisher can create the object of a number.
 * Waiting only saves work. A waiting publisher watches the checkpoint, which the active publisher signs again every
 * ten seconds, and measures the checkpoint's age by its own monotonic clock, so clocks of two machines are never
 * compared. An active publisher becomes a waiting one when it sees a generation of another publisher.
 */
export class Standby {
  /** True from the first successful {@link mayPublish} until this publisher sees a generation of another one. */
  isActive = false;
  /** The checkpoint that was seen last, and since when, ms of the monotonic clock; etag null: there is none yet. */
  #lastCheckpoint: { etag: string | null; since: number } | null = null;
  /** Number of the newest generation that this publisher has seen while it was active. */
  #newestGeneration = -1;
  readonly #takeoverMs: number;

  constructor(private readonly parts: StandbyParts) {
    // The wait depends on the name, so that several publishers that wait for one checkpoint do not all take over at
    // the same time.
    const share = createHash("sha256").update(parts.writer).digest()[0]! / 256;
    this.#takeoverMs = (parts.takeoverMs ?? TAKEOVER_MS) * (1 + share);
  }

  /**
   * Returns true if this publisher may publish now, and then makes it the active one. Returns false if another
   * publisher is active. Must be called before each publication.
   * @throws errors of the stores and of `start`; then this publisher is inactive, and the next call tries again
   */
  async mayPublish(): Promise<boolean> {
    if (this.isActive) {
      if (!(await this.#wasOvertaken())) return true;
      this.isActive = false;
      this.#lastCheckpoint = null;
    }
    const etag = (await this.parts.publicStore.head(CHECKPOINT))?.etag ?? null;
    const now = this.parts.monotonic();
    if (this.#lastCheckpoint === null || this.#lastCheckpoint.etag !== etag)
      this.#lastCheckpoint = { etag, since: now };
    // If nothing was ever published, all publishers may try, and one of them creates the first generation.
    if (etag !== null && now - this.#lastCheckpoint.since < this.#takeoverMs) return false;
    this.#newestGeneration = await highestGeneration(this.parts.privateStore, -1);
    await this.parts.start?.();
    this.isActive = true;
    return true;
  }

  async #wasOvertaken(): Promise<boolean> {
    const store = this.parts.privateStore;
    const newest = await highestGeneration(store, this.#newestGeneration);
    if (newest <= this.#newestGeneration) return false;
    this.#newestGeneration = newest;
    return (await readGeneration(store, newest)).writer !== this.parts.writer;
  }
}
