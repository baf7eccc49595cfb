import { createHash } from "node:crypto";
import type { Store } from "../../../infra/store/store.ts";
import { highestGeneration, readGeneration } from "../../4-publish/generation.ts";
import { CHECKPOINT } from "../../published/objects.ts";

/** After how much stillness of the checkpoint, which an active publisher signs every 10 s, another takes over, ms. */
const PATIENCE_MS = 30_000;

export interface StandbyParts {
  privateStore: Store;
  publicStore: Pick<Store, "head">;
  /** Milliseconds of a steady counter. */
  monotonic: () => number;
  /** As this publisher names itself in its generations. */
  writer: string;
  /** Stillness of the checkpoint after which it is our turn, ms (default 30,000); up to twice that, by our name. */
  patienceMs?: number;
}

/**
 * Whose turn it is to publish, seen from one publisher. Nothing is agreed and nothing is locked: two that publish at once
 * are safe, since each generation has one winner, so waiting is economy. Who waits watches the checkpoint, which an active
 * publisher signs again every ten seconds, by its own steady clock: clocks of two machines are never compared. Who is
 * active waits again as soon as it sees another's generation.
 */
export class Standby {
  active = false;
  #seen: { etag: string | null; since: number } | null = null;
  /** Newest generation that was looked at while active. */
  #generation = -1;
  readonly #patience: number;

  constructor(private readonly parts: StandbyParts) {
    // Publishers that stepped back at one moment must not all take over at one moment: the wait depends on the name.
    const share = createHash("sha256").update(parts.writer).digest()[0]! / 256;
    this.#patience = (parts.patienceMs ?? PATIENCE_MS) * (1 + share);
  }

  /** To be called before each turn. @returns whether the turn is ours */
  async mine(): Promise<boolean> {
    if (this.active) {
      if (!(await this.#wasOvertaken())) return true;
      this.active = false;
      this.#seen = null;
    }
    const etag = (await this.parts.publicStore.head(CHECKPOINT))?.etag ?? null;
    const now = this.parts.monotonic();
    if (this.#seen === null || this.#seen.etag !== etag) this.#seen = { etag, since: now };
    // Nothing was ever published: whoever is first wins the first generation.
    this.active = etag === null || now - this.#seen.since >= this.#patience;
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
