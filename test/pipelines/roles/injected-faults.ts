import type { Lake } from "../../../infra/lake/duckdb.ts";
import { type Store, StoreFull } from "../../../infra/store/store.ts";

/** What goes wrong once, with a key of the store that matches. */
export type FaultKind =
  /** The disk is full: nothing is written. */
  | "full"
  /** It is stored, and the answer is an error. */
  | "answer lost"
  /** Half of it is stored under its name, and the writer dies. */
  | "torn"
  /** A read misses what is there. */
  | "stale"
  /** One bit of what is read is another one. */
  | "flipped";

export interface StoreFault {
  match: RegExp;
  how: FaultKind;
}

export class FaultInjected extends Error {}

/** A store in which one thing goes wrong, once. `happened` says whether it did. */
export function faultIn(store: Store, { match, how }: StoreFault): { store: Store; happened: () => boolean } {
  let left = 1;
  const now = (key: string, ...hows: FaultKind[]) => hows.includes(how) && match.test(key) && left > 0 && left-- > 0;
  const write = async <T>(key: string, bytes: Uint8Array, place: (bytes: Uint8Array) => Promise<T>): Promise<T> => {
    if (!now(key, "full", "answer lost", "torn")) return place(bytes);
    if (how === "full") throw new StoreFull(key, new Error("ENOSPC"));
    await place(how === "torn" ? bytes.subarray(0, bytes.length >> 1) : bytes);
    throw new FaultInjected(`${how}: ${key}`);
  };
  const wrapped: Store = {
    async get(key, options) {
      if (now(key, "stale")) return null;
      const object = await store.get(key, options);
      if (!object || !now(key, "flipped")) return object;
      const bytes = Buffer.from(object.bytes);
      bytes[bytes.length >> 1]! ^= 1;
      return { ...object, bytes };
    },
    getRange: (key, start, end) => store.getRange(key, start, end),
    head: (key) => store.head(key),
    list: (prefix, options) => store.list(prefix, options),
    create: (key, bytes, meta) => write(key, bytes, (given) => store.create(key, given, meta)),
    swap: (key, bytes, expected, meta) => write(key, bytes, (given) => store.swap(key, given, expected, meta)),
    delete: (key) => store.delete(key),
    close: () => store.close(),
  };
  return { store: wrapped, happened: () => left === 0 };
}

/** A lake whose next transaction, once armed, is rolled back at its end, or committed and its answer lost. */
export function faultInLake(lake: Lake, how: "rolled back" | "answer lost"): { lake: Lake; arm: () => void } {
  let armed = false;
  const transaction: Lake["transaction"] = async (work, stage) => {
    const mine = armed;
    armed = false;
    const result = await lake.transaction(async (tx) => {
      const done = await work(tx);
      if (mine && how === "rolled back") throw new FaultInjected(how);
      return done;
    }, stage);
    if (mine) throw new FaultInjected(how);
    return result;
  };
  const wrapped = new Proxy(lake, {
    get(own, name) {
      if (name === "transaction") return transaction;
      const value: unknown = Reflect.get(own, name, own);
      return typeof value === "function" ? value.bind(own) : value;
    },
  });
  return {
    lake: wrapped,
    arm: () => {
      armed = true;
    },
  };
}
