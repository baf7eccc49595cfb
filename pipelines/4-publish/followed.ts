import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { PublishedFold } from "../published/fold.ts";
import { PublishedTree } from "../published/reader.ts";

/** The published state that a grader uses: held by the publisher in its own process, or read from the public store. */
export interface PublishedRecord {
  /** The state computed from all leaves that were read. It changes in place. */
  readonly fold: PublishedFold;
  /** Reads all new publications, then returns {@link fold}. */
  current(): Promise<PublishedFold>;
}

/**
 * The published state in a process that publishes nothing and holds no signing key; it is read from the public store.
 * It may be some seconds old, so the publisher checks again every decision that was based on it.
 */
export class FollowedRecord implements PublishedRecord {
  readonly fold = new PublishedFold();
  readonly #tree: PublishedTree;

  /** @param trust returns the keys that verify checkpoints */
  constructor(
    store: Pick<Store, "get">,
    private readonly trust: () => CheckpointTrust,
  ) {
    this.#tree = new PublishedTree(store, trust());
  }

  /** Reads the leaves up to the newest checkpoint. @throws BadNote, MissingObject, Tampered, HistoryChanged */
  async current(): Promise<PublishedFold> {
    this.#tree.setTrust(this.trust());
    const snapshot = await this.#tree.newest();
    if (snapshot) await this.fold.readNewLeaves(snapshot.reader);
    return this.fold;
  }
}
