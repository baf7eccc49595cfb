import type { Store } from "../../infra/store/store.ts";
import type { Checkpoint, CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { type ReadLeaf, RecordReader, readCheckpoint } from "./reader.ts";

/** The published history is not the one that was read before: a rollback or a fork. */
export class HistoryChanged extends Error {
  constructor(says: string) {
    super(says);
    this.name = "HistoryChanged";
  }
}

/** A proven state of the published tree. A checkpoint taken later proves that it goes on from this one. */
export interface Snapshot {
  readonly head: Checkpoint;
  readonly reader: RecordReader;
}

/** The published tree as serving reads it: only forward, and everything proven before it is given out. */
export class PublishedTree {
  #last: Snapshot | null = null;

  constructor(
    private readonly store: Pick<Store, "get">,
    private trusted: CheckpointTrust,
  ) {}

  /** Whom to believe from the next look on: keys are rotated. What was read stays, and has to be gone on from. */
  trust(trust: CheckpointTrust): void {
    this.trusted = trust;
  }

  /**
   * The newest snapshot, or null before the first publication.
   * @throws BadNote, MissingObject, Tampered; HistoryChanged when it does not go on from the last one.
   */
  async newest(): Promise<Snapshot | null> {
    const head = await readCheckpoint(this.store, this.trusted);
    const last = this.#last;
    if (!head) {
      if (last) throw new HistoryChanged(`the checkpoint of ${last.head.size} leaves is gone`);
      return null;
    }
    if (last && head.size < last.head.size)
      throw new HistoryChanged(`back from ${last.head.size} leaves to ${head.size}`);
    if (last && head.size === last.head.size) {
      if (!head.root.equals(last.head.root)) throw new HistoryChanged(`two roots for ${head.size} leaves`);
      return last;
    }
    const reader = await RecordReader.open(this.store, head);
    if (last && !(await reader.extends(last.head))) {
      throw new HistoryChanged(`the tree of ${head.size} leaves does not begin with that of ${last.head.size}`);
    }
    this.#last = { head, reader };
    return this.#last;
  }
}

export type { ReadLeaf };
