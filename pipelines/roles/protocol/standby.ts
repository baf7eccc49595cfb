import { createHash } from "node:crypto";
import type { Store } from "../../../infra/store/store.ts";
import { highestGeneration, readGeneration } from "../../4-publish/generation.ts";
import { CHECKPOINT } from "../../published/objects.ts";

/** Time without a new checkpoint after which another publisher takes over, ms. The active one signs every 10 s. */
const PATIENCE_MS = 30_000;

export interface StandbyParts {
  privateStore: Store;
  publicStore: Pick<Store, "head">;
  /** Milliseconds of a steady counter. */
  monotonic: () => number;
  /** Name of this publisher in its generations. */
  writer: string;
  /** Time without a new checkpoint until we take over, ms (default 30,000); up to twice as long, depending on our name. */
  patienceMs?: number;
}

/**
 * Decides for one publisher whether it is active. There is no lock: two that publish at once are safe, since each
 * generation has one winner; waiting only saves work. A waiting publisher watches the checkpoint, which the active one
 * signs again every ten seconds, and measures its age by its own steady clock, so clocks of two machines are never
 * compared. An active publisher waits again once it sees a generation of another.
 */
export class Standby {
  active = false;
  #lastCheckpoint: { etag: string | null; since: number } | null = null;
  /** Newest generation that was looked at while active. */
  #generation = -1;
  readonly #patience: number;

  constructor(private readonly parts: StandbyParts) {
    // The wait depends on the name, so that publishers that stepped back together do not all take over together.
    const share = createHash("sha256").update(parts.writer).digest()[0]! / 256;
    this.#patience = (parts.patienceMs ?? PATIENCE_MS) * (1 + share);
  }

  /** Must be called before each turn. @returns true when this publisher is active and may publish */
  async mayPublish(): Promise<boolean> {
    if (this.active) {
      if (!(await this.#wasOvertaken())) return true;
      this.active = false;
      this.#lastCheckpoint = null;
    }
    const etag = (await this.parts.publicStore.head(CHECKPOINT))?.etag ?? null;
    const now = this.parts.monotonic();
    if (this.#lastCheckpoint === null || this.#lastCheckpoint.etag !== etag)
      this.#lastCheckpoint = { etag, since: now };
    // Nothing was ever published: all may try, and one wins the first generation.
    this.active = etag === null || now - this.#lastCheckpoint.since >= this.#patience;
    if (this.active) this.#generation = await highestGeneration(this.parts.privateStore, -1);
    return this.active;
  }

  async #wasOvertaken(): Promise<boolean> {
    const store = this.parts.privateStore;
    const newest = await highestGeneration(store, this.#generation);
    if (newest <= this.#generation) return false;
    this.#generation = newest;
    return (await readGeneration(store, newest)).writer !== this.parts.writer;
  }
}
