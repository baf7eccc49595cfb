import { z } from "zod";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { consistencyProof, verifyConsistency } from "../../infra/tree/proof.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { Forked, MirrorBusy, parseJson, Rollback, Stale } from "../published/errors.ts";
import type { Source } from "../published/source.ts";
import { findSigningKeys, type GivenKeys, logOfPolicy, mergePins, Pins, trustOfPins } from "../published/trust.ts";

/**
 * The newest leaves that name a keys document and an index, in the form of the hints (unsigned objects that name these
 * leaves).
 */
const NewestKeys = z.strictObject({ n: z.int(), key: z.string(), sha256: z.string(), leaf: z.int() });
const NewestIndex = z.strictObject({
  ...{ tree_size: z.int(), key: z.string(), leaf: z.int() },
  table: z.string().optional(),
});
export interface NewestLeaves {
  keys: z.infer<typeof NewestKeys> | null;
  index: z.infer<typeof NewestIndex> | null;
}

/** A verified checkpoint. `note` is its signed text with the signatures. */
const SavedTreeHead = z.strictObject({
  size: z.int().min(0),
  root: Sha256Hex,
  cosigned_at: z.string().nullable(),
  note: z.string(),
});
export type SavedTreeHead = z.infer<typeof SavedTreeHead>;

/** The parts of a record besides the tree and its keys. A mirror may copy one of them alone. */
export const RECORD_PARTS = ["index", "archive", "evidence"] as const;
export type RecordPart = (typeof RECORD_PARTS)[number];

/**
 * The commit of a run: everything below `head`, except listed missing objects, is in the mirror's public folder and was
 * proven; with `only`, just the tree, its keys documents and this part. `keys` and `index` are what the hints name.
 */
const MirrorCommit = z.strictObject({
  ...{ head: SavedTreeHead, keys: NewestKeys.nullable(), index: NewestIndex.nullable() },
  only: z.enum(RECORD_PARTS).optional(),
});
export type MirrorCommit = z.infer<typeof MirrorCommit>;

/** An object that a leaf names and that is not in the mirror: the source lacks it, or its bytes did not match. */
const Missing = z.strictObject({
  key: z.string(),
  expected: z.string(),
  got: z.string(),
  since: z.string(),
  tries: z.int().min(1),
  /** Everything that is needed to prove the object later (missing.ts). */
  object: z.looseObject({ what: z.string() }),
});
export type Missing = z.infer<typeof Missing>;

/**
 * All missing objects, and the tree's newest index. The mirror's hint names this index once its list, shards and
 * Parquet file are copied.
 */
const MissingList = z.strictObject({ items: z.array(Missing), index: NewestIndex.nullable() });
export type MissingList = z.infer<typeof MissingList>;

/** Time of the last search for partial tiles that may be deleted. */
const Collected = z.strictObject({ at: z.iso.datetime() });

/** Names of the files in the folder of the mirror's own state. */
const PINS = "pins.json";
const TRUSTED = "trusted.json";
const PENDING = "pending.json";
const MISSING = "missing.json";
const COLLECTED = "collected.json";

export const toSavedTreeHead = (checkpoint: Checkpoint): SavedTreeHead => ({
  size: checkpoint.size,
  root: checkpoint.root.toString("hex"),
  cosigned_at: checkpoint.cosignedAt?.toISOString() ?? null,
  note: checkpoint.bytes.toString("utf8"),
});

async function readFrom<T>(store: Pick<Store, "get">, key: string, schema: z.ZodType<T>) {
  const object = await store.get(key);
  if (!object) return { etag: null, value: null };
  const parsed = schema.safeParse(parseJson(object.bytes));
  if (!parsed.success) throw new Error(`the mirror's own ${key} is damaged: ${parsed.error.issues[0]!.message}`);
  return { etag: object.etag, value: parsed.data };
}

/** Reads the commit of a mirror's last run, for programs that only read the mirror's folder. */
export const readMirrorCommit = async (store: Pick<Store, "get">): Promise<MirrorCommit | null> =>
  (await readFrom(store, TRUSTED, MirrorCommit)).value;

/** Reads the keys that a mirror trusts, for programs that only read the mirror's folder. */
export const readPins = async (store: Pick<Store, "get">): Promise<Pins | null> =>
  (await readFrom(store, PINS, Pins)).value;

/**
 * A mirror's own state, in a folder that it does not expose. A file is written only if it is unchanged since this
 * process read it, so that a second process in the folder is noticed and nothing that was proven is overwritten.
 */
export class MirrorState {
  readonly #etags = new Map<string, string | null>();

  constructor(private readonly store: Store) {}

  readPins = (): Promise<Pins | null> => this.#read(PINS, Pins);
  readCommit = (): Promise<MirrorCommit | null> => this.#read(TRUSTED, MirrorCommit);
  /** Reads the checkpoint of an unfinished run. It was verified, but its tree is not copied completely. */
  readPending = (): Promise<SavedTreeHead | null> => this.#read(PENDING, SavedTreeHead);

  savePins = (pins: Pins): Promise<void> => this.#write(PINS, pins);
  /** Commits a run: from now on its tree is the mirror's snapshot, even if the process dies. */
  saveCommit = (trusted: MirrorCommit): Promise<void> => this.#write(TRUSTED, trusted);
  readMissing = async (): Promise<MissingList> =>
    (await this.#read(MISSING, MissingList)) ?? { items: [], index: null };
  /** Called before the commit, so that no missing object is forgotten. */
  saveMissing = (list: MissingList): Promise<void> => this.#write(MISSING, list);
  savePending = (head: SavedTreeHead): Promise<void> => this.#write(PENDING, head);

  /** Reads when {@link saveCollected} was last called; null: never. */
  readCollected = async (): Promise<Date | null> => {
    const collected = await this.#read(COLLECTED, Collected);
    return collected && new Date(collected.at);
  };
  saveCollected = (at: Date): Promise<void> => this.#write(COLLECTED, { at: at.toISOString() });

  async clearPending(): Promise<void> {
    await this.store.delete(PENDING);
    this.#etags.set(PENDING, null);
  }

  /** Saves the two notes of a fork in one file, once for each pair of notes. @returns the key of the file */
  async saveEvidence(earlierNote: string, newNote: string, says: string): Promise<string> {
    const key = `fork/${sha256hex(earlierNote + newNote).slice(0, 16)}.txt`;
    await this.store.create(
      key,
      Buffer.from(`${says}\n\n== proven before ==\n${earlierNote}\n== seen now ==\n${newNote}`),
    );
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

/** Default of the greatest accepted age of a cosignature, s. The log promises a new cosignature every ten minutes. */
const MAX_AGE_SECONDS = 86_400;

/**
 * Checks the age of a checkpoint's cosignature.
 * @param maxAgeSeconds 0 accepts any age.
 * @throws Stale, Failure `usage` when an age was given and no witness is trusted
 */
export function checkAge(head: Checkpoint, clock: Clock, maxAgeSeconds: number | undefined): void {
  if (maxAgeSeconds === 0 || (maxAgeSeconds === undefined && !head.cosignedAt)) return;
  if (!head.cosignedAt) throw new Failure("usage", "the age of a checkpoint needs a witness key, or a --max-age of 0");
  const age = Math.floor((clock.now().getTime() - head.cosignedAt.getTime()) / 1000);
  const maxAccepted = maxAgeSeconds ?? MAX_AGE_SECONDS;
  if (age > maxAccepted) throw new Stale(head.cosignedAt, age, maxAccepted);
}

/**
 * Compares a signed head with an earlier one by size, and by root if the sizes are equal.
 * @throws Rollback; Forked after both notes were saved
 */
export async function checkNotOlder(head: Checkpoint, earlierHead: SavedTreeHead, state: MirrorState): Promise<void> {
  if (head.size < earlierHead.size) throw new Rollback(earlierHead.size, head.size);
  if (head.size > earlierHead.size || head.root.toString("hex") === earlierHead.root) return;
  await throwForked(head, earlierHead, state, `two roots for ${head.size} leaves`);
}

/**
 * Proves that a larger tree begins with the earlier one. The hashes of the proof are proven under the head first, so
 * a proof that fails is the log's fault and not that of damaged tiles.
 * @throws Forked after both notes were saved; MissingObject, Tampered
 */
export async function checkExtends(
  head: Checkpoint,
  earlierHead: SavedTreeHead,
  tiles: TileReader,
  state: MirrorState,
): Promise<void> {
  if (earlierHead.size === 0 || earlierHead.size === head.size) return;
  const proof = await consistencyProof(earlierHead.size, head.size, tiles.node);
  const root = Buffer.from(earlierHead.root, "hex");
  if (verifyConsistency(earlierHead.size, head.size, root, head.root, proof)) return;
  await throwForked(
    head,
    earlierHead,
    state,
    `the tree of ${head.size} leaves does not begin with that of ${earlierHead.size}`,
  );
}

async function throwForked(
  head: Checkpoint,
  earlierHead: SavedTreeHead,
  state: MirrorState,
  says: string,
): Promise<never> {
  throw new Forked(says, await state.saveEvidence(earlierHead.note, head.bytes.toString("utf8"), says));
}

/**
 * Returns the keys that this mirror trusts: those given, else those pinned (saved) by an earlier run, else those that
 * the source shows now. The caller pins them once they have verified the checkpoint. If they are those that the source
 * shows, `say` tells the operator, since the mirror then trusts any source.
 * @param bytes the source's checkpoint
 * @param pinned keys that an earlier run saved
 * @throws Failure `usage`, also for a malformed key; Unproven when no key of the source signed its checkpoint
 */
export async function pinsFor(
  source: Source,
  bytes: Uint8Array,
  pinned: Pins | null,
  givenKeys: GivenKeys,
  say: (text: string) => void,
): Promise<Pins> {
  if (givenKeys.witness && !givenKeys.log) throw new Failure("usage", "a witness key needs the log key beside it");
  const log = givenKeys.log ?? logOfPolicy(givenKeys.policy, bytes);
  if (!log && pinned) return pinned;
  const firstUsePins = log ? null : await findSigningKeys(source, bytes);
  const pins: Pins = firstUsePins ?? mergePins(log!, givenKeys.witness, pinned);
  const { name: origin } = trustOfPins(pins).log;
  const pinnedOrigin = pinned && trustOfPins(pinned).log.name;
  if (pinnedOrigin && pinnedOrigin !== origin) {
    throw new Failure("usage", `this folder mirrors ${pinnedOrigin}, not ${origin}`);
  }
  if (firstUsePins)
    say(`trust on first use: pinned --log-key ${pins.log} --witness-key ${pins.witness} as ${source.name} shows them`);
  return pins;
}
