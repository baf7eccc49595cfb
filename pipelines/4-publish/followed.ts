import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { PublishedFold } from "../published/fold.ts";
import { PublishedTree } from "../published/reader.ts";

/** The published state for a grader: held by the publisher itself, or followed from the public store. */
export interface PublishedRecord {
  /** The state as of the newest publication that was read. It changes in place. */
  readonly fold: PublishedFold;
  /** Reads all new publications, then returns {@link fold}. */
  current(): Promise<PublishedFold>;
}

/**
 * The published state, followed from the public store by a process that publishes nothing and holds no signing key. It
 * may be some seconds old, so the publisher checks every decision that was based on it again.
 */
export class FollowedRecord implements PublishedRecord {
  readonly fold = new PublishedFold();
  readonly #tree: PublishedTree;

  /** @param trust the keys that checkpoints are verified with */
  constructor(
    store: Pick<Store, "get">,
    private readonly trust: () => CheckpointTrust,
  ) {
    this.#tree = new PublishedTree(store, trust());
  }

  /** Reads up to the newest checkpoint. @throws BadNote, MissingObject, Tampered, HistoryChanged */
  async current(): Promise<PublishedFold> {
    this.#tree.setTrust(this.trust());
    const snapshot = await this.#tree.newest();
    if (snapshot) await this.fold.readNewLeaves(snapshot.reader);
    return this.fold;
  }
}
