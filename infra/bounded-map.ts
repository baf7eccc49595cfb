/** A map of at most `max` entries, which drops the entry that was set longest ago. For caches. */
export class BoundedMap<K, V> extends Map<K, V> {
  constructor(readonly max: number) {
    super();
  }

  /** Sets an entry and makes it the newest. Iterate over a copy of the map when the loop sets entries. */
  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    if (this.size > this.max) this.delete(this.keys().next().value as K);
    return this;
  }
}

/** A cache of values that have at most `maxBytes` bytes together, which drops the least recently read entry first. */
export class ByteCache<V> {
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  #bytes = 0;

  constructor(private readonly maxBytes: number) {}

  /** Bytes of all values. */
  get bytes(): number {
    return this.#bytes;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: V, bytes: number): void {
    this.#bytes += bytes - (this.#entries.get(key)?.bytes ?? 0);
    this.#entries.set(key, { value, bytes });
    while (this.#bytes > this.maxBytes) {
      const [oldest, dropped] = this.#entries.entries().next().value!;
      this.#entries.delete(oldest);
      this.#bytes -= dropped.bytes;
    }
  }
}
