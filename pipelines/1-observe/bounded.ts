/** A map that forgets its oldest entry past `max`: for what is only remembered to save work. */
export class BoundedMap<K, V> {
  readonly #map = new Map<K, V>();
  constructor(readonly max: number) {}

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): void {
    this.#map.delete(key);
    this.#map.set(key, value);
    if (this.#map.size > this.max) this.#map.delete(this.#map.keys().next().value as K);
  }

  delete(key: K): void {
    this.#map.delete(key);
  }

  keys(): K[] {
    return [...this.#map.keys()];
  }

  entries(): [K, V][] {
    return [...this.#map];
  }

  get size(): number {
    return this.#map.size;
  }

  values(): V[] {
    return [...this.#map.values()];
  }
}
