import { z } from "zod";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { MirrorBusy } from "../published/errors.ts";
import { parseJson } from "../published/parse.ts";
import { Pins } from "../published/trust.ts";

/** The newest leaves that name keys and an index, in the form of the hints. */
const NewestKeys = z.strictObject({ n: z.int(), key: z.string(), sha256: z.string(), leaf: z.int() });
export const NewestIndex = z.strictObject({ tree_size: z.int(), key: z.string(), leaf: z.int() });
export interface Newest {
  keys: z.infer<typeof NewestKeys> | null;
  index: z.infer<typeof NewestIndex> | null;
}

/** A checkpoint that was proven, with its note as text. */
const SavedTreeHead = z.strictObject({
  size: z.int().min(0),
  root: Sha256Hex,
  cosigned_at: z.string().nullable(),
  note: z.string(),
});
export type SavedTreeHead = z.infer<typeof SavedTreeHead>;

/** Everything below `head` is in the mirror's public folder, proven. */
const Trusted = z.strictObject({ head: SavedTreeHead, keys: NewestKeys.nullable(), index: NewestIndex.nullable() });
export type Trusted = z.infer<typeof Trusted>;

/** An object that leaves name and that is not here: the source lacks it, or what it gave did not hold. */
const Missing = z.strictObject({
  key: z.string(),
  expected: z.string(),
  got: z.string(),
  since: z.string(),
  tries: z.int().min(1),
  /** What it has to be, enough to prove it later (missing.ts). */
  object: z.looseObject({ what: z.string() }),
});
export type Missing = z.infer<typeof Missing>;

/** Everything missing, and the newest index of the tree, which is hinted at once all of it is here. */
const MissingList = z.strictObject({ items: z.array(Missing), index: NewestIndex.nullable() });
export type MissingList = z.infer<typeof MissingList>;

const PINS = "pins.json";
const TRUSTED = "trusted.json";
const PENDING = "pending.json";
const MISSING = "missing.json";

export const savedTreeHead = (checkpoint: Checkpoint): SavedTreeHead => ({
  size: checkpoint.size,
  root: checkpoint.root.toString("hex"),
  cosigned_at: checkpoint.cosignedAt?.toISOString() ?? null,
  note: checkpoint.bytes.toString("utf8"),
});

async function readFrom<T>(store: Pick<Store, "get">, key: string, schema: z.ZodType<T>) {
  const object = await store.get(key);
  if (!object) return { etag: null, value: null };
  const read = schema.safeParse(parseJson(object.bytes));
  if (!read.success) throw new Error(`the mirror's own ${key} is damaged: ${read.error.issues[0]!.message}`);
  return { etag: object.etag, value: read.data };
}

/** What a mirror trusts, for whoever only reads its folder. */
export const readTrusted = async (store: Pick<Store, "get">): Promise<Trusted | null> =>
  (await readFrom(store, TRUSTED, Trusted)).value;

/**
 * What a mirror remembers, in a folder that it does not expose. Each file is swapped against what this process read, so
 * a second process in the same folder is noticed and nothing that was proven is forgotten.
 */
export class MirrorState {
  readonly #etags = new Map<string, string | null>();

  constructor(private readonly store: Store) {}

  pins = (): Promise<Pins | null> => this.#read(PINS, Pins);
  trusted = (): Promise<Trusted | null> => this.#read(TRUSTED, Trusted);
  /** The checkpoint that an unfinished run was fetching: seen and signed, its tree not copied yet. */
  pending = (): Promise<SavedTreeHead | null> => this.#read(PENDING, SavedTreeHead);

  savePins = (pins: Pins): Promise<void> => this.#write(PINS, pins);
  /** The commit of a run: from here on this is the snapshot, whatever happens to the process. */
  saveTrusted = (trusted: Trusted): Promise<void> => this.#write(TRUSTED, trusted);
  missing = async (): Promise<MissingList> => (await this.#read(MISSING, MissingList)) ?? { items: [], index: null };
  /** Written before the commit: an object that is missing is never forgotten. */
  saveMissing = (list: MissingList): Promise<void> => this.#write(MISSING, list);
  savePending = (head: SavedTreeHead): Promise<void> => this.#write(PENDING, head);

  async clearPending(): Promise<void> {
    await this.store.delete(PENDING);
    this.#etags.set(PENDING, null);
  }

  /** Keep both notes of a fork, once per pair. @returns the key of the file */
  async saveEvidence(ours: string, theirs: string, says: string): Promise<string> {
    const key = `fork/${sha256hex(ours + theirs).slice(0, 16)}.txt`;
    await this.store.create(key, Buffer.from(`${says}\n\n== proven before ==\n${ours}\n== seen now ==\n${theirs}`));
    return key;
  }

  async #read<T>(key: string, schema: z.ZodType<T>): Promise<T | null> {
    const { etag, value } = await readFrom(this.store, key, schema);
    this.#etags.set(key, etag);
    return value;
  }

  async #write(key: string, value: unknown): Promise<void> {
    const swap = await this.store.swap(key, canonicalBytes(value), this.#etags.get(key) ?? null);
    if (swap.result === "lost") throw new MirrorBusy();
    this.#etags.set(key, swap.etag);
  }
}
