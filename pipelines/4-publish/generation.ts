import { z } from "zod";
import { compress, decompress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { Failure } from "../../infra/errors.ts";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { highestNumbered, numberedKey } from "../../infra/store/numbered.ts";
import type { Store } from "../../infra/store/store.ts";
import { decodeEntries, encodeEntries } from "../../infra/tree/bundle.ts";

/**
 * A generation is one extension of the log. A publisher wins generation n by creating the private object
 * `generation/<20-digit n>`, which only one can do. The object holds the new root and the event-log offsets up to
 * which the published grades were computed, so that after a crash no record is skipped or used twice. Numbers start
 * at 0 without gaps, and generations are never deleted.
 */
const TreeHead = z.strictObject({ size: z.int().min(0), root: Sha256Hex });
const Positions = z.record(z.string(), z.record(z.string(), z.int()));
export const Generation = z.strictObject({
  v: z.literal(1),
  n: z.int().min(0),
  /** The log's tree before and after this extension. */
  old: TreeHead,
  new: TreeHead,
  /** Key of the private object that holds the new leaves and nothing else. */
  staging: z.string(),
  /**
   * Number of the newest run (the result of one grading) of which every line was handled; null before the first. The
   * next run to publish has the next number.
   */
  run: z.int().nullable(),
  /** Id of the event log that `positions` refers to, null before the first run. */
  log: z.string().nullable(),
  /** {topic: {partition: next offset}}: how far the runs up to `run` have read the event log. */
  positions: Positions,
  /** Name of the process that won this generation. */
  writer: z.string(),
  /** Time of the publication, RFC 3339. */
  at: z.string(),
  /**
   * sha256 of the RFC 8785 bytes of all other members. It protects the positions, in which a flipped bit would make
   * the publisher skip records. Generations that were written before this member was introduced lack it.
   */
  sha256: z.string().optional(),
});
/** A generation without its digest, which {@link generationBytes} adds. */
export type Generation = Omit<z.infer<typeof Generation>, "sha256">;

export const generationKey = (n: number): string => numberedKey("generation", n);

/** A private object is missing or damaged. Publishing stops until it is repaired. */
export class BadPrivateObject extends Failure {
  constructor(key: string, reason: string) {
    super("record", `private object ${key}: ${reason}`);
  }
}

/** Reads generation n. @throws BadPrivateObject when it is missing or damaged */
export async function readGeneration(store: Pick<Store, "get">, n: number): Promise<Generation> {
  const key = generationKey(n);
  const object = await store.get(key);
  if (!object) throw new BadPrivateObject(key, "missing");
  return parseGeneration(key, object.bytes);
}

function parseGeneration(key: string, bytes: Uint8Array): Generation {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch (error) {
    throw new BadPrivateObject(key, (error as Error).message);
  }
  const parsed = Generation.safeParse(value);
  if (!parsed.success) throw new BadPrivateObject(key, parsed.error.issues[0]!.message);
  const { sha256, ...generation } = parsed.data;
  if (sha256 !== undefined && sha256 !== digestOf(generation))
    throw new BadPrivateObject(key, "is not what its digest says");
  return generation;
}

const digestOf = (generation: Generation): string => sha256hex(canonicalBytes(generation));

/** The bytes of a generation's object, with its digest. */
export const generationBytes = (generation: Generation): Buffer =>
  canonicalBytes({ ...generation, sha256: digestOf(generation) });

/**
 * Finds the number of the highest generation, searching upwards from `knownGeneration`, which exists (-1: none is
 * known). Returns -1 when there is no generation.
 */
export const highestGeneration = (store: Pick<Store, "head">, knownGeneration: number): Promise<number> =>
  highestNumbered(store, "generation", knownGeneration);

/**
 * Creates the object of `generation`. If the store's answer is lost, reads the object back: if it holds our bytes, we
 * have won.
 * @returns false when another publisher has created this number
 * @throws what the store throws when it is not known whether the object was created; the next recovery finds out
 */
export async function winGeneration(store: Store, generation: Generation): Promise<boolean> {
  const key = generationKey(generation.n);
  const bytes = generationBytes(generation);
  try {
    if ((await store.create(key, bytes)).result === "created") return true;
  } catch (error) {
    const stored = await store.get(key).catch(() => null);
    if (!stored) throw error;
    return Buffer.compare(stored.bytes, bytes) === 0;
  }
  const stored = await store.get(key);
  return stored !== null && Buffer.compare(stored.bytes, bytes) === 0;
}

/** Writes the leaves of the next generation as one private object. @returns its key, which is derived from the bytes */
export async function stageLeaves(store: Store, entries: readonly Uint8Array[]): Promise<string> {
  const bytes = encodeEntries(entries);
  const key = `staging/${sha256hex(bytes)}`;
  const { result } = await store.create(key, compress(bytes, { compressionLevel: 3 }));
  if (result === "exists") await readStagedLeaves(store, key);
  return key;
}

/** Reads the staged leaves of a generation. @throws BadPrivateObject when they are missing or do not match their key */
export async function readStagedLeaves(store: Store, key: string): Promise<Buffer[]> {
  const object = await store.get(key);
  if (!object) throw new BadPrivateObject(key, "missing");
  const bytes = decompress(object.bytes);
  if (key !== `staging/${sha256hex(bytes)}`) throw new BadPrivateObject(key, "is not what its name says");
  return decodeEntries(bytes);
}

/** Merges two sets of positions; where both have a partition, `newer` counts. */
export function mergePositions(old: Generation["positions"], newer: Generation["positions"]): Generation["positions"] {
  const merged = { ...old };
  for (const [topic, partitions] of Object.entries(newer)) merged[topic] = { ...merged[topic], ...partitions };
  return merged;
}
