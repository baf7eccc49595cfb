/**
 * Names with the time (RFC 3339 or a UTC day) from which each is due. Names are kept in one set for each hour or day,
 * so that finding the due names does not visit the others.
 */
export class MomentIndex {
  readonly #momentByName = new Map<string, string>();
  readonly #namesByBucket = new Map<string, Set<string>>();

  /** Number of names that have a time. */
  get size(): number {
    return this.#momentByName.size;
  }

  /** Sets the time from which the name is due, in place of the one that was set before; null: it is never due. */
  set(name: string, moment: string | null): void {
    const oldMoment = this.#momentByName.get(name);
    if (oldMoment !== undefined) this.#remove(name, oldMoment);
    if (moment === null) {
      this.#momentByName.delete(name);
      return;
    }
    this.#momentByName.set(name, moment);
    const names = this.#namesByBucket.get(bucketOf(moment));
    if (names) names.add(name);
    else this.#namesByBucket.set(bucketOf(moment), new Set([name]));
  }

  /** Names whose time is not after `now`. They stay due until {@link set} changes them. */
  findDue(now: string): string[] {
    const dueNames: string[] = [];
    for (const [bucket, names] of this.#namesByBucket) {
      if (bucket > bucketOf(now)) continue;
      for (const name of names) if (this.#momentByName.get(name)! <= now) dueNames.push(name);
    }
    return dueNames;
  }

  #remove(name: string, moment: string): void {
    const bucket = bucketOf(moment);
    const names = this.#namesByBucket.get(bucket);
    names?.delete(name);
    if (names?.size === 0) this.#namesByBucket.delete(bucket);
  }
}

/** The hour ("2026-11-15T12") of a time; a day is returned as it is. */
const bucketOf = (moment: string): string => moment.slice(0, 13);
