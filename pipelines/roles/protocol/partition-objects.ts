import type { z } from "zod";
import { Failure } from "../../../infra/errors.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { PublishedRecord } from "../../4-publish/followed.ts";
import { BadPrivateObject } from "../../4-publish/generation.ts";

/**
 * The error for an object that would replace a newer one: another process holds the partition now and has read more
 * of the log. The object is not written.
 */
export class OvertakenByOwner extends Failure {
  constructor(key: string, why: string) {
    super("busy", `${key}: another owner ${why}`);
  }
}

interface Part {
  log: string;
  /** {topic: next offset}: the object was made from the partition's log records below these offsets. */
  positions: Record<string, number>;
}

/**
 * What an owner (a process that ingests and grades some partitions) needs to make the private objects of its
 * partitions.
 */
export interface PartitionObjectParts<T extends Part> {
  lake: Lake;
  followed: PublishedRecord;
  objects: PartitionObjects<T>;
  log: { id: string; partitions: number };
  /**
   * @throws PartitionsRevoked when one of the partitions was taken from this process while it worked on them: rows
   * may have been removed from the lake before they were read
   */
  refuseRevoked: () => void;
}

/**
 * Attempts to replace one object by compare-and-swap. An attempt fails when another owner has written the object
 * since it was read.
 */
const MAX_SWAP_ATTEMPTS = 8;

/**
 * One private object for each partition, `owners/<name>/<partition>`, which the partition's owner replaces by
 * compare-and-swap and the publisher reads. The object's positions never decrease: an owner with lower positions gets
 * {@link OvertakenByOwner} and writes nothing. An object of another log counts as missing.
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
   * Writes an object for a partition, unless `mustReplace` returns false for the stored one.
   * @param mustReplace returns whether the new object must replace the stored one; its errors are thrown
   * @throws OvertakenByOwner, and errors of the store
   */
  async put(partition: number, part: T, mustReplace: (stored: T) => boolean): Promise<void> {
    const key = this.#keyOf(partition);
    const bytes = Buffer.from(JSON.stringify(part));
    for (let attempt = 0; attempt < MAX_SWAP_ATTEMPTS; attempt++) {
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
   * Returns the objects of all partitions. Only those that changed since the last call are read from the store.
   * @throws BadPrivateObject if an object is damaged
   */
  async readAll(): Promise<Map<number, T>> {
    const parts = new Map<number, T>();
    for (let partition = 0; partition < this.log.partitions; partition++) {
      const key = this.#keyOf(partition);
      // Each object is looked up by key, since a listing may lack an object that was written a moment ago.
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
