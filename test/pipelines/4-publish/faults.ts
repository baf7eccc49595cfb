import type { Store } from "../../../infra/store/store.ts";

/** What happens to one write: it fails before it is stored, or is stored and the answer is lost. */
export type Outcome = "fails before" | "answer lost";
export interface Fault {
  /** Number of the write, over both stores, from 0. */
  write: number;
  outcome: Outcome;
  /** The process dies there: every later write and read fails, too. */
  dies: boolean;
}

export class Dead extends Error {}
export class Broken extends Error {}

/** Counts the writes of a publisher over its two stores, and lets one of them go wrong. */
export class Faults {
  readonly writes: string[] = [];
  #dead = false;

  constructor(private readonly fault: Fault | null = null) {}

  wrap(store: Store, name: string): Store {
    const write = <T>(key: string, work: () => Promise<T>): Promise<T> => this.#write(`${name} ${key}`, work);
    const read = async <T>(work: () => Promise<T>): Promise<T> => {
      if (this.#dead) throw new Dead("dead");
      return work();
    };
    return {
      get: (key, options) => read(() => store.get(key, options)),
      getRange: (key, start, end) => read(() => store.getRange(key, start, end)),
      head: (key) => read(() => store.head(key)),
      list: (prefix, options) => read(() => store.list(prefix, options)),
      create: (key, bytes, meta) => write(key, () => store.create(key, bytes, meta)),
      swap: (key, bytes, expected, meta) => write(key, () => store.swap(key, bytes, expected, meta)),
      delete: (key) => write(key, () => store.delete(key)),
      close: () => store.close(),
    };
  }

  async #write<T>(what: string, work: () => Promise<T>): Promise<T> {
    if (this.#dead) throw new Dead("dead");
    const mine = this.writes.push(what) - 1 === this.fault?.write ? this.fault : null;
    if (!mine) return work();
    if (mine.outcome === "fails before") {
      this.#dead = mine.dies;
      throw new Broken(what);
    }
    await work();
    this.#dead = mine.dies;
    throw new Broken(`${what}: answer lost`);
  }
}
