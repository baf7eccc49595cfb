import type { PublishedCap, PublishedFold } from "./fold.ts";
import { entryOf, type IndexEntry } from "./index-lines.ts";

/**
 * What the index says at one moment, while the fold goes on: only what changes meanwhile is kept as it was, so that
 * nothing has to be copied at once, however many endpoints there are.
 */
export class IndexMoment {
  readonly #changed = new Map<string, IndexEntry | null>();
  /** No longer keeps what changes; nothing may be asked after it. */
  readonly end: () => void;

  constructor(private readonly fold: PublishedFold) {
    this.end = fold.onChange((name) => {
      if (this.#changed.has(name)) return;
      const cap = fold.caps.get(name);
      this.#changed.set(name, cap ? entryOf(cap) : null);
    });
  }

  /** Endpoints that may be listed, those that came later among them: they have no entry. */
  caps(): Iterable<PublishedCap> {
    return this.fold.caps.values();
  }

  /** The entry of an endpoint at the moment; null when it was not listed then. */
  entryOf(cap: PublishedCap): IndexEntry | null {
    const before = this.#changed.get(cap.cap);
    return before === undefined ? entryOf(cap) : before;
  }
}
