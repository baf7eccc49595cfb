import { randomBytes } from "node:crypto";
import { type Store, StoreRefused } from "./store.ts";

/** A store's answer about a key to a client that only reads. `refused` is S3's AccessDenied, `other` any other refusal. */
export type KeyState = "there" | "missing" | "refused" | "other";

export interface UnlistedParts {
  /** Asks for one key, without its bytes. */
  ask: (key: string) => Promise<KeyState>;
  /** A key that exists in every store that is not empty. If it cannot be read, the store cannot be read at all. */
  known: string;
}

/**
 * Tells missing objects from refused ones. S3 answers AccessDenied for an object that does not exist to a client that may
 * read the bucket but not list it (GetObject of the S3 API: 403 without s3:ListBucket, 404 with it). A refusal counts as
 * missing only if the store at this moment also refuses a key in that folder that cannot exist, and gives the known object.
 * If the store answers 404 for the impossible key, it means its refusals. If it refuses the known object too (wrong
 * credentials, a firewall, a withdrawn policy), it is down. A folder that a policy leaves out looks empty to every reader.
 */
export class Unlisted {
  /** Folders in which a key that cannot exist was refused. */
  readonly #folders = new Set<string>();

  constructor(private readonly parts: UnlistedParts) {}

  /** After a key was refused: true when the object does not exist. @throws the errors of `ask` */
  async hides(key: string): Promise<boolean> {
    const { ask, known } = this.parts;
    if (key === known) return false;
    const folder = key.slice(0, key.lastIndexOf("/") + 1);
    // Only first-level names are remembered, since a log has any number of folders of tiles.
    const name = folder.slice(0, folder.indexOf("/") + 1);
    if (!this.#folders.has(name)) {
      // A name of 128 random bits: no such object exists.
      if ((await ask(`${folder}${randomBytes(16).toString("hex")}`)) !== "refused") return false;
      this.#folders.add(name);
    }
    if ((await ask(known)) !== "there") return false;
    // The store gives objects that exist now. The first refusal may have been a passing fault, so the key is asked again.
    return (await ask(key)) === "refused";
  }
}

/** Wraps a store whose client may lack the right to list it: for a missing object it returns null instead of throwing. */
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
