/**
 * Names by the moment (RFC 3339 or a UTC day) from which on each is due, found without looking at those that are not: they
 * lie in one set an hour or a day, and there are few of those.
 */
export class Moments {
  readonly #of = new Map<string, string>();
  readonly #sets = new Map<string, Set<string>>();

  /** Names that have a moment. */
  get size(): number {
    return this.#of.size;
  }

  /** Sets the moment from which the name is due, in place of an earlier one; null: never. */
  set(name: string, moment: string | null): void {
    const before = this.#of.get(name);
    if (before !== undefined) this.#remove(name, before);
    if (moment === null) {
      this.#of.delete(name);
      return;
    }
    this.#of.set(name, moment);
    const set = this.#sets.get(shelfOf(moment));
    if (set) set.add(name);
    else this.#sets.set(shelfOf(moment), new Set([name]));
  }

  /** Names whose moment is not after `now`; they stay due until they are set anew. */
  due(now: string): string[] {
    const due: string[] = [];
    for (const [shelf, names] of this.#sets) {
      if (shelf > shelfOf(now)) continue;
      for (const name of names) if (this.#of.get(name)! <= now) due.push(name);
    }
    return due;
  }

  #remove(name: string, moment: string): void {
    const shelf = shelfOf(moment);
    const set = this.#sets.get(shelf);
    set?.delete(name);
    if (set?.size === 0) this.#sets.delete(shelf);
  }
}

/** "2026-11-15T12" of a moment, the day itself of a day. */
const shelfOf = (moment: string): string => moment.slice(0, 13);
