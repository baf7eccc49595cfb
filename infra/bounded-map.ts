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
