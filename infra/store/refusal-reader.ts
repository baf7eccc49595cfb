import { randomBytes } from "node:crypto";
import { type Store, StoreRefused } from "./store.ts";

/**
 * What a store answers about a key to a client that only reads. `refused` is S3's AccessDenied, `other` any other
 * refusal.
 */
export type KeyState = "there" | "missing" | "refused" | "other";

export interface RefusalReaderParts {
  /** Requests one key without its bytes, and returns what the store answered. */
  ask: (key: string) => Promise<KeyState>;
  /**
   * Key of an object that every store has unless it is empty. If this object cannot be read, the store cannot be read
   * at all.
   */
  known: string;
}

/**
 * Distinguishes missing objects from refused ones. To a client that may read a bucket but not list it, S3 answers
 * AccessDenied for an object that does not exist (GetObject of the S3 API: 403 without s3:ListBucket, 404 with it). So
 * a refusal counts as missing only if the store now also refuses a key in that folder that cannot exist, and still
 * gives the known object. If the store answers 404 for the impossible key, its refusal of the first key is real. If the
 * store refuses the known object too (wrong credentials, a firewall, a withdrawn policy), the store counts as down. A
 * folder that a policy excludes looks empty to every reader.
 */
export class RefusalReader {
  /** First-level folders in which the store refused a key that cannot exist. */
  readonly #folders = new Set<string>();

  constructor(private readonly parts: RefusalReaderParts) {}

  /** Called after a key was refused: returns true when the object does not exist. @throws the errors of `ask` */
  async isMissing(key: string): Promise<boolean> {
    const { ask, known } = this.parts;
    if (key === known) return false;
    const folder = key.slice(0, key.lastIndexOf("/") + 1);
    // Remembers only first-level folders, since the folders of the tree's tiles below them are many.
    const name = folder.slice(0, folder.indexOf("/") + 1);
    if (!this.#folders.has(name)) {
      // With 128 random bits in its name, no such object exists.
      if ((await ask(`${folder}${randomBytes(16).toString("hex")}`)) !== "refused") return false;
      this.#folders.add(name);
    }
    if ((await ask(known)) !== "there") return false;
    // The store returns existing objects now. Its first refusal may have been a passing fault, so the key is requested
    // again.
    return (await ask(key)) === "refused";
  }
}

/** Wraps a store whose client may lack the right to list it: for a missing object it returns null instead of throwing. */
export function withMissingAsNull(store: Store, known: string): Store {
  const ask = async (key: string): Promise<KeyState> => {
    try {
      return (await store.head(key)) ? "there" : "missing";
    } catch (error) {
      if (error instanceof StoreRefused) return "refused";
      throw error;
    }
  };
  const refusals = new RefusalReader({ ask, known });
  const nullIfMissing = async <T>(key: string, request: Promise<T | null>): Promise<T | null> => {
    try {
      return await request;
    } catch (error) {
      if (error instanceof StoreRefused && (await refusals.isMissing(key))) return null;
      throw error;
    }
  };
  return {
    get: (key, options) => nullIfMissing(key, store.get(key, options)),
    getRange: (key, start, end) => nullIfMissing(key, store.getRange(key, start, end)),
    head: (key) => nullIfMissing(key, store.head(key)),
    create: (key, bytes, meta) => store.create(key, bytes, meta),
    swap: (key, bytes, expected, meta) => store.swap(key, bytes, expected, meta),
    list: (prefix, options) => store.list(prefix, options),
    delete: (key) => store.delete(key),
    close: () => store.close(),
  };
}
