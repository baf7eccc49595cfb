import type { z } from "zod";
import { Failure } from "../../../infra/errors.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { PublishedRecord } from "../../4-publish/followed.ts";
import { BadPrivateObject } from "../../4-publish/generation.ts";

/**
 * The error for an object that is older than the stored one: another process holds the partition now and has read
 * further. The older object is not written.
 */
export class OvertakenByOwner extends Failure {
  constructor(key: string, why: string) {
    super("busy", `${key}: another owner ${why}`);
  }
}

interface Part {
  log: string;
  /** {topic: next offset}: log positions of the partition up to which the object's content was read. */
  positions: Record<string, number>;
}

/** The dependencies of an owner when it makes the private objects of its partitions. */
export interface PartitionObjectParts<T extends Part> {
  lake: Lake;
  followed: PublishedRecord;
  objects: PartitionObjects<T>;
  log: { id: string; partitions: number };
  /**
   * @throws PartitionsRevoked when a partition was revoked since the call: its rows may have left the lake while they
   * were read
   */
  refuseRevoked: () => void;
}

/** Compare-and-swap attempts for one object before giving up. An attempt fails when another owner wrote the object. */
const MAX_SWAP_ATTEMPTS = 8;

/**
 * One private object for each partition, `owners/<name>/<partition>`, which the owner of the partition replaces by
 * compare-and-swap. The object's positions never decrease: an owner with lower positions gets {@link OvertakenByOwner}
 * and writes nothing. An object of another log counts as missing.
 */
export class PartitionObjects<T extends Part> {
  readonly #lastRead = new Map<string, { etag: string; part: T }>();
  readonly #prefix: string;

  constructor(
    private readonly store: Store,
    name: string,
    private readonly shape: z.ZodType<T>,
    private readonly log: { id: string; partitions: number },
  ) {
    this.#prefix = `owners/${name}/`;
  }

  /**
   * Writes our object, unless `mustReplace` returns false for the stored object.
   * @param mustReplace returns whether our object replaces the stored one; its errors are thrown
   * @throws OvertakenByOwner, and errors of the store
   */
  async put(partition: number, part: T, mustReplace: (stored: T) => boolean): Promise<void> {
    const key = this.#keyOf(partition);
    const bytes = Buffer.from(JSON.stringify(part));
    for (let race = 0; race < MAX_SWAP_ATTEMPTS; race++) {
      const object = await this.store.get(key);
      const stored = object && this.#readOrNull(key, object.bytes);
      if (stored) {
        this.#checkNotOlder(key, part, stored);
        if (!mustReplace(stored)) return;
      }
      const swap = await this.store.swap(key, bytes, object?.etag ?? null);
      if (swap.result === "swapped") {
        this.#lastRead.set(key, { etag: swap.etag, part });
        return;
      }
    }
    throw new Error(`${key}: lost ${MAX_SWAP_ATTEMPTS} swaps in a row`);
  }

  /**
   * Reads the objects of these partitions for their owner. A damaged object counts as missing, so that the owner writes
   * it again.
   */
  async readOwn(heldPartitions: readonly number[]): Promise<Map<number, T>> {
    const parts = new Map<number, T>();
    for (const partition of heldPartitions) {
      const key = this.#keyOf(partition);
      const object = await this.store.get(key);
      const part = object && this.#readOrNull(key, object.bytes);
      if (part) parts.set(partition, part);
    }
    return parts;
  }

  /**
   * Returns the object of each partition. Only objects that changed are read.
   * @throws BadPrivateObject if an object is damaged
   */
  async readAll(): Promise<Map<number, T>> {
    const parts = new Map<number, T>();
    for (let partition = 0; partition < this.log.partitions; partition++) {
      const key = this.#keyOf(partition);
      // The object is read by key, since a listing may lack an object that was written a moment ago.
      const head = await this.store.head(key);
      if (!head) continue;
      const lastRead = this.#lastRead.get(key);
      const object = lastRead?.etag === head.etag ? null : await this.store.get(key);
      const part = object ? this.#read(key, object.bytes) : lastRead?.part;
      if (!part) continue;
      if (object) this.#lastRead.set(key, { etag: object.etag, part });
      parts.set(partition, part);
    }
    return parts;
  }

  #keyOf(partition: number): string {
    return `${this.#prefix}${String(partition).padStart(2, "0")}`;
  }

  #checkNotOlder(key: string, part: T, stored: T): void {
    for (const [topic, next] of Object.entries(stored.positions)) {
      const ownOffset = part.positions[topic] ?? 0;
      if (ownOffset < next)
        throw new OvertakenByOwner(key, `has read ${topic} up to ${next}, this one up to ${ownOffset}`);
    }
  }

  /** Reads an object. A damaged object counts as missing, and its owner writes it again. */
  #readOrNull(key: string, bytes: Uint8Array): T | null {
    try {
      return this.#read(key, bytes);
    } catch {
      return null;
    }
  }

  #read(key: string, bytes: Uint8Array): T | null {
    let part: T;
    try {
      part = this.shape.parse(JSON.parse(Buffer.from(bytes).toString("utf8")));
    } catch (error) {
      throw new BadPrivateObject(key, (error as Error).message.slice(0, 300));
    }
    return part.log === this.log.id ? part : null;
  }
}
