/** A delta with at least one eighth of the base's number of keys is merged into a new base. */
const MERGE_DIVISOR = 8;
/** A delta with fewer keys than this is never merged. */
const MERGE_MIN = 1024;

/** An immutable map in two layers: a large base that is shared between versions, and a small delta that is copied. */
export class LayeredMap<V> {
  private constructor(
    private readonly base: ReadonlyMap<string, V>,
    private readonly delta: ReadonlyMap<string, V>,
    /** Number of keys. */
    readonly size: number,
  ) {}

  static empty<V>(): LayeredMap<V> {
    return new LayeredMap<V>(new Map(), new Map(), 0);
  }

  get(key: string): V | undefined {
    return this.delta.get(key) ?? this.base.get(key);
  }

  /** Returns a map with these changes; this one does not change. */
  with(changes: ReadonlyMap<string, V>): LayeredMap<V> {
    if (changes.size === 0) return this;
    let added = 0;
    for (const key of changes.keys()) if (this.get(key) === undefined) added++;
    const delta = new Map([...this.delta, ...changes]);
    const size = this.size + added;
    if (delta.size < Math.max(MERGE_MIN, this.base.size / MERGE_DIVISOR)) return new LayeredMap(this.base, delta, size);
    return new LayeredMap(new Map([...this.base, ...delta]), new Map(), size);
  }

  /** Yields every value once, those of the base first. */
  *values(): Generator<V> {
    for (const [key, value] of this.base) yield this.delta.get(key) ?? value;
    for (const [key, value] of this.delta) if (!this.base.has(key)) yield value;
  }
}
