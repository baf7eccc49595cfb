import type { Store } from "../../../../infra/store/store.ts";

/** One thing that a publisher asked of a store. */
export interface StoreCall {
  store: "private" | "public";
  op: "get" | "getRange" | "head" | "list" | "create" | "swap" | "delete";
  /** Of a listing: its prefix. */
  key: string;
  /** How often this very thing was asked before, from 0: with it a call is found again in another run. */
  again: number;
}

/** Stands around every call: may let it through, fail before or after it, change its answer, or sleep. */
export type Around = <T>(call: StoreCall, work: () => Promise<T>) => Promise<T>;

export const idOf = ({ store, op, key, again }: StoreCall): string =>
  `${store} ${op} ${key}${again ? ` (${again + 1})` : ""}`;

const WRITES = new Set<StoreCall["op"]>(["create", "swap", "delete"]);
export const isWrite = ({ op }: StoreCall): boolean => WRITES.has(op);

/** Every call of both stores of one publisher, in the order in which they were begun. */
export class Calls {
  readonly made: StoreCall[] = [];
  readonly #times = new Map<string, number>();

  constructor(private readonly around: Around = (_, work) => work()) {}

  wrap(store: Store, name: StoreCall["store"]): Store {
    const call = <T>(op: StoreCall["op"], key: string, work: () => Promise<T>): Promise<T> => {
      const what = `${name} ${op} ${key}`;
      const again = this.#times.get(what) ?? 0;
      this.#times.set(what, again + 1);
      const made = { store: name, op, key, again };
      this.made.push(made);
      return this.around(made, work);
    };
    return {
      get: (key, options) => call("get", key, () => store.get(key, options)),
      getRange: (key, start, end) => call("getRange", key, () => store.getRange(key, start, end)),
      head: (key) => call("head", key, () => store.head(key)),
      list: (prefix, options) => call("list", prefix, () => store.list(prefix, options)),
      create: (key, bytes, meta) => call("create", key, () => store.create(key, bytes, meta)),
      swap: (key, bytes, expected, meta) => call("swap", key, () => store.swap(key, bytes, expected, meta)),
      delete: (key) => call("delete", key, () => store.delete(key)),
      close: () => store.close(),
    };
  }
}
