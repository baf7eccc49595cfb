import { z } from "zod";
import type { Clock } from "../../infra/clock.ts";
import { forEachConcurrent } from "../../infra/concurrency.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { SourceDown } from "../published/errors.ts";
import { archiveFileOf, evidenceFileOf, type NamedCall } from "../published/files.ts";
import { ShardLine } from "../published/index-lines.ts";
import { callKey, kindOfKey, type ObjectKind, shardKey } from "../published/objects.ts";
import { ArchiveLeaf, EvidenceLeaf, IndexLeaf } from "../record/leaf.ts";
import type { NamedObjectCopier } from "./objects.ts";
import type { Missing, MissingList, NewestLeaves } from "./state.ts";

/**
 * An object outside the tree that a leaf, a list of shards or an evidence line names, with everything that proves it.
 * Keys documents are not among these objects: the chain of keys needs each of them, so a run that lacks one fails.
 * The length of a call comes from an evidence line and may be negative; fetchCall refuses it, and the call stays listed.
 */
const Wanted = z.discriminatedUnion("what", [
  z.object({ what: z.literal("index"), leaf: IndexLeaf, jwks: z.custom<Jwks>().nullable() }),
  z.object({ what: z.literal("table"), leaf: IndexLeaf }),
  z.object({ what: z.literal("shard"), line: ShardLine }),
  z.object({ what: z.literal("evidence"), leaf: EvidenceLeaf }),
  z.object({ what: z.literal("archive"), leaf: ArchiveLeaf }),
  z.object({ what: z.literal("call"), call: z.object({ sha256: Sha256Hex, bytes: z.int() }) }),
]);
export type WantedObject = z.infer<typeof Wanted>;

/** Largest number of missing objects that are listed. If one more is missing, the run fails. */
const MAX_MISSING = 100_000;
/**
 * After the source did not answer for this many objects, and no object was copied in between, a run requests no further
 * object. It still adopts the remaining objects that are in the mirror and match.
 */
const MAX_UNANSWERED = 5;

/** The kind of public object that each sort of wanted object is. */
const KIND_OF: Record<WantedObject["what"], ObjectKind> = {
  index: "indexList",
  table: "indexTable",
  shard: "indexShard",
  evidence: "evidence",
  archive: "archiveFile",
  call: "call",
};

const keyOfWanted = (wanted: WantedObject): string | null => {
  switch (wanted.what) {
    case "index":
      return wanted.leaf.key;
    case "table":
      return wanted.leaf.table?.key ?? null;
    case "shard":
      return shardKey(wanted.line.sha256);
    case "evidence":
      return evidenceFileOf(wanted.leaf)?.key ?? null;
    case "archive":
      return archiveFileOf(wanted.leaf).key;
    case "call":
      return callKey(wanted.call.sha256);
  }
};

/**
 * Fetches the objects whose names and hashes are in leaves. An object that the source does not have, or whose hash
 * differs, is missing: it is not added to the mirror, but listed, reported, and requested again by the next run. The
 * mirror copies everything else.
 */
export class MissingObjects {
  readonly #missing = new Map<string, Missing>();
  readonly #triedKeys = new Set<string>();
  #unansweredInRow = 0;
  /** Adopts objects that are in the mirror, and requests none. */
  readonly #storedObjects: NamedObjectCopier;

  constructor(
    private readonly sourceObjects: NamedObjectCopier,
    earlierList: MissingList,
    private readonly clock: Clock,
    /** True: an object in the mirror that does not match is deleted if the source has no matching one. */
    private readonly deletesUnproven = false,
  ) {
    this.#storedObjects = sourceObjects.withoutSource("no answer for others: not asked for");
    for (const one of earlierList.items) this.#missing.set(one.key, one);
  }

  /** The objects that earlier runs could not get. */
  get earlierObjects(): WantedObject[] {
    return [...this.#missing.values()].map(({ object }) => Wanted.parse(object));
  }

  get missing(): Missing[] {
    return [...this.#missing.values()];
  }

  get #isSourceSilent(): boolean {
    return this.#unansweredInRow >= MAX_UNANSWERED;
  }

  get #copier(): NamedObjectCopier {
    return this.#isSourceSilent ? this.#storedObjects : this.sourceObjects;
  }

  /** Whether no list, shard or Parquet file of an index is missing. */
  get isIndexComplete(): boolean {
    return this.missing.every(({ object: { what } }) => what !== "index" && what !== "shard" && what !== "table");
  }

  /**
   * Drops the Parquet files of older indexes from the missing objects, since a publisher keeps them for only two days.
   */
  forgetOldTables(newestKey: string | undefined): void {
    for (const { key, object } of this.missing) {
      if (object.what === "table" && key !== newestKey) this.#missing.delete(key);
    }
  }

  /**
   * Fetches objects: first indexes, then their shards and all other objects, then the calls that evidence files name.
   * An object that cannot be fetched or proven is added to the missing ones, and the run continues.
   * @throws errors that neither the object nor the source causes; when more than MAX_MISSING objects are missing, the
   * error of the next one
   */
  async collect(
    wanted: readonly WantedObject[],
    width: number,
    onProgress: (done: number, of: number) => void,
  ): Promise<void> {
    const shards: WantedObject[] = [];
    const [indexes, others] = [wanted.filter(isIndex), wanted.filter((one) => !isIndex(one))];
    await forEachConcurrent(indexes, width, (one) =>
      this.#fetchOrList(one, async () => {
        for (const line of await this.#copier.copyIndexList(one.leaf, one.jwks)) shards.push({ what: "shard", line });
      }),
    );
    const calls: WantedObject[] = [];
    const firstWave = [...shards, ...others];
    let done = 0;
    for (const wave of [firstWave, calls]) {
      await forEachConcurrent(wave, width, async (one) => {
        await this.#fetchOrList(one, async () => {
          for (const call of await this.#fetch(one)) calls.push({ what: "call", call });
        });
        onProgress(++done, firstWave.length + calls.length);
      });
    }
  }

  /** @returns the calls that the fetched object names */
  async #fetch(one: WantedObject): Promise<NamedCall[]> {
    switch (one.what) {
      case "index":
        await this.#copier.copyIndexList(one.leaf, one.jwks);
        return [];
      case "table":
        await this.#copier.copyTable(one.leaf);
        return [];
      case "shard":
        await this.#copier.copyShard(one.line);
        return [];
      case "evidence":
        return this.#copier.copyEvidence(evidenceFileOf(one.leaf)!);
      case "archive":
        await this.#copier.copyArchive(one.leaf);
        return [];
      case "call":
        await this.#copier.copyCall(one.call);
        return [];
    }
  }

  /** Calls `fetch`, unless this run has tried the object's key before, and lists the object as missing if it fails. */
  async #fetchOrList(object: WantedObject, fetch: () => Promise<unknown>): Promise<void> {
    const key = keyOfWanted(object);
    if (key === null || this.#triedKeys.has(key)) return;
    this.#triedKeys.add(key);
    try {
      await fetch();
      this.#missing.delete(key);
      if (!this.#isSourceSilent) this.#unansweredInRow = 0;
    } catch (error) {
      const reason = reasonOf(error);
      // A leaf may name the key of an object of another kind, which must not be deleted.
      if (reason && this.deletesUnproven && kindOfKey(key) === KIND_OF[object.what])
        await this.sourceObjects.deleteObject(key);
      if (!reason || (!this.#missing.has(key) && this.#missing.size >= MAX_MISSING)) throw error;
      this.#unansweredInRow = error instanceof SourceDown ? this.#unansweredInRow + 1 : this.#unansweredInRow;
      const { since = this.clock.now().toISOString(), tries = 0 } = this.#missing.get(key) ?? {};
      this.#missing.set(key, { key, ...reason, since, tries: tries + 1, object });
    }
  }

  /**
   * Makes the list to save.
   * @param index the tree's newest index. The mirror's hint names it once its list, shards and Parquet file are copied
   */
  list(index: NewestLeaves["index"]): MissingList {
    return { items: this.missing, index };
  }
}

const isIndex = (one: WantedObject): one is WantedObject & { what: "index" } => one.what === "index";

/** Longest text of a reason that is kept, characters. */
const MAX_REASON_LENGTH = 300;

/** Returns why an object could not be copied; null for an error that does not come from the object or the source. */
function reasonOf(error: unknown): { expected: string; got: string } | null {
  const { name, expected, got, message } = (error ?? {}) as Record<string, string | undefined>;
  const shorten = (text: string | undefined) => String(text).slice(0, MAX_REASON_LENGTH);
  if (name === "Unproven" || name === "Tampered") return { expected: shorten(expected), got: shorten(got) };
  if (name === "MissingObject") return { expected: "an object", got: "none" };
  if (name === "Oversized") return { expected: "fewer bytes", got: shorten(message) };
  if (name === "SourceDown") return { expected: "an answer", got: shorten(message) };
  return null;
}
