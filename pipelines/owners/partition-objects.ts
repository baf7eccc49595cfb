import type { z } from "zod";
import type { Store } from "../../infra/store/store.ts";
import { BadPrivate } from "../4-publish/generation.ts";

/** Another process has this partition and is further with it: what we would say of it is old. */
export class Outrun extends Error {
  constructor(key: string, topic: string, ours: number, theirs: number) {
    super(`${key}: another owner has read ${topic} up to ${theirs}, this one up to ${ours}`);
    this.name = "Outrun";
  }
}

interface Said {
  log: string;
  /** {topic: next offset} of the partition behind what is said. */
  positions: Record<string, number>;
}

/** Races for one object before giving up; each lost one means that another owner wrote it. */
const MAX_RACES = 8;

/**
 * One private object a partition, `owners/<name>/<partition>`, replaced by compare-and-swap: what the partition's owner
 * says of it now. It never goes back: who is behind what is there is told so and writes nothing. An object of another log
 * is as good as none.
 */
export class PartitionObjects<T extends Said> {
  readonly #known = new Map<string, { etag: string; said: T }>();
  readonly #prefix: string;

  constructor(
    private readonly store: Store,
    name: string,
    private readonly shape: z.ZodType<T>,
    private readonly logId: string,
  ) {
    this.#prefix = `owners/${name}/`;
  }

  /**
   * @param differs is what we have to say another thing than what is there? Else the object stays.
   * @throws Outrun, and what the store throws
   */
  async put(partition: number, said: T, differs: (theirs: T) => boolean): Promise<void> {
    const key = this.#keyOf(partition);
    const bytes = Buffer.from(JSON.stringify(said));
    for (let race = 0; race < MAX_RACES; race++) {
      const object = await this.store.get(key);
      const theirs = object && this.#readOrNull(key, object.bytes);
      if (theirs) {
        this.#refuseOld(key, said, theirs);
        if (!differs(theirs)) return;
      }
      const swap = await this.store.swap(key, bytes, object?.etag ?? null);
      if (swap.result === "swapped") {
        this.#known.set(key, { etag: swap.etag, said });
        return;
      }
    }
    throw new Error(`${key}: lost ${MAX_RACES} swaps in a row`);
  }

  /** What is said of these partitions, for their owner: what is damaged is as good as not said, so it is said anew. */
  async ofOurs(held: readonly number[]): Promise<Map<number, T>> {
    const ours = new Map<number, T>();
    for (const partition of held) {
      const key = this.#keyOf(partition);
      const object = await this.store.get(key);
      const said = object && this.#readOrNull(key, object.bytes);
      if (said) ours.set(partition, said);
    }
    return ours;
  }

  /** What is said of each partition now; only objects that changed are read. @throws BadPrivate until it is said anew */
  async all(): Promise<Map<number, T>> {
    const all = new Map<number, T>();
    for (const { key, etag } of await this.store.list(this.#prefix)) {
      const known = this.#known.get(key);
      const object = known?.etag === etag ? null : await this.store.get(key);
      const said = object ? this.#read(key, object.bytes) : known?.said;
      if (!said) continue;
      if (object) this.#known.set(key, { etag: object.etag, said });
      all.set(Number(key.slice(this.#prefix.length)), said);
    }
    return all;
  }

  #keyOf(partition: number): string {
    return `${this.#prefix}${String(partition).padStart(2, "0")}`;
  }

  #refuseOld(key: string, said: T, theirs: T): void {
    for (const [topic, next] of Object.entries(theirs.positions)) {
      const ours = said.positions[topic] ?? 0;
      if (ours < next) throw new Outrun(key, topic, ours, next);
    }
  }

  /** What is damaged is replaced: its owner knows all of it. */
  #readOrNull(key: string, bytes: Uint8Array): T | null {
    try {
      return this.#read(key, bytes);
    } catch {
      return null;
    }
  }

  #read(key: string, bytes: Uint8Array): T | null {
    let said: T;
    try {
      said = this.shape.parse(JSON.parse(Buffer.from(bytes).toString("utf8")));
    } catch (error) {
      throw new BadPrivate(key, (error as Error).message.slice(0, 300));
    }
    return said.log === this.logId ? said : null;
  }
}
