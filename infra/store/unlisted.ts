import { randomBytes } from "node:crypto";
import { type Store, StoreRefused } from "./store.ts";

/** What a store says of a key to whoever only reads. `refused` is S3's AccessDenied and no other refusal. */
export type KeyState = "there" | "missing" | "refused" | "other";

export interface UnlistedParts {
  /** Asks for one key, without its bytes. */
  ask: (key: string) => Promise<KeyState>;
  /** Is there whenever anything is; what it says tells whether the store can be read at all. */
  known: string;
}

/**
 * S3 says AccessDenied of an object that is not there to whoever may read the bucket and not list it (GetObject of the
 * S3 API: 403 without s3:ListBucket, 404 with it), and so does every bucket whose policy lets anybody read and nobody
 * list. Such a refusal counts as missing only where nothing else can be told from it: the same store refuses, in the same
 * folder, a key that cannot exist, and gives the known object at this moment. A store that has 404 for what it has not
 * means its refusals; one that refuses everything (credentials, a firewall, a policy that was taken back) is down.
 * A policy that leaves out a folder looks like an empty folder to every reader.
 */
export class Unlisted {
  /** Folders in which a key that cannot exist was refused. */
  readonly #folders = new Set<string>();

  constructor(private readonly parts: UnlistedParts) {}

  /** A key was refused: is it because there is no such object? What `ask` throws is thrown. */
  async hides(key: string): Promise<boolean> {
    const { ask, known } = this.parts;
    if (key === known) return false;
    const folder = key.slice(0, key.lastIndexOf("/") + 1);
    // A first-level name bounds the set: a log has as many folders of tiles as it likes.
    const name = folder.slice(0, folder.indexOf("/") + 1);
    if (!this.#folders.has(name)) {
      // 128 random bits: nobody has made that object.
      if ((await ask(`${folder}${randomBytes(16).toString("hex")}`)) !== "refused") return false;
      this.#folders.add(name);
    }
    if ((await ask(known)) !== "there") return false;
    // Asked once more, now that the store is known to give what it has: a refusal that passed was no answer about the key.
    return (await ask(key)) === "refused";
  }
}

/** A store that is only read, perhaps by somebody who may not list it: what is missing is missing there too. */
export function tellingMissing(store: Store, known: string): Store {
  const ask = async (key: string): Promise<KeyState> => {
    try {
      return (await store.head(key)) ? "there" : "missing";
    } catch (error) {
      if (error instanceof StoreRefused) return "refused";
      throw error;
    }
  };
  const unlisted = new Unlisted({ ask, known });
  const told = async <T>(key: string, asked: Promise<T | null>): Promise<T | null> => {
    try {
      return await asked;
    } catch (error) {
      if (error instanceof StoreRefused && (await unlisted.hides(key))) return null;
      throw error;
    }
  };
  return {
    get: (key, options) => told(key, store.get(key, options)),
    getRange: (key, start, end) => told(key, store.getRange(key, start, end)),
    head: (key) => told(key, store.head(key)),
    create: (key, bytes, meta) => store.create(key, bytes, meta),
    swap: (key, bytes, expected, meta) => store.swap(key, bytes, expected, meta),
    list: (prefix, options) => store.list(prefix, options),
    delete: (key) => store.delete(key),
    close: () => store.close(),
  };
}
