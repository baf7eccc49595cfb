import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { PublishedFold } from "../published/fold.ts";
import { PublishedTree } from "../published/reader.ts";

/** What is published, as a grader reads it: from the publisher itself, or from a follower of the public store. */
export interface PublishedRecord {
  /** Changes in place with every publication that is seen. */
  readonly fold: PublishedFold;
  /** The same, caught up. */
  current(): Promise<PublishedFold>;
}

/**
 * What is published, followed from the public store by a process that publishes nothing: it holds no key and writes
 * nothing. It may be some seconds old, so the publisher compares everything that was decided on it once more.
 */
export class Followed implements PublishedRecord {
  readonly fold = new PublishedFold();
  readonly #tree: PublishedTree;

  /** @param trust the keys that checkpoints are verified with */
  constructor(
    store: Pick<Store, "get">,
    private readonly trust: () => CheckpointTrust,
  ) {
    this.#tree = new PublishedTree(store, trust());
  }

  /** Catch up with the newest checkpoint. @throws BadNote, MissingObject, Tampered, HistoryChanged */
  async current(): Promise<PublishedFold> {
    this.#tree.trust(this.trust());
    const snapshot = await this.#tree.newest();
    if (snapshot) await this.fold.readNewLeaves(snapshot.reader);
    return this.fold;
  }
}
