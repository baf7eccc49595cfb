/** A map that forgets its oldest entry past `max`: for what is only remembered to save work. */
export class BoundedMap<K, V> extends Map<K, V> {
  constructor(readonly max: number) {
    super();
  }

  /** An entry that is set again is the newest: whoever does so while reading the map reads a copy of it. */
  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    if (this.size > this.max) this.delete(this.keys().next().value as K);
    return this;
  }
}
