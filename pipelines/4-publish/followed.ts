import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { PublishedFold } from "../published/fold.ts";
import { PublishedTree } from "../published/reader.ts";
import type { RunLine } from "../record/card.ts";
import { DueDays } from "./due.ts";
import { saysNothingNew } from "./take-lines.ts";

/** What is published, as somebody who grades needs to know it: the publisher itself, or one who follows it. */
export interface PublishedRecord {
  /** Changes in place with every publication that is seen. */
  readonly fold: PublishedFold;
  /** The same, caught up. */
  current(): Promise<PublishedFold>;
  /** Endpoints whose card may change by time alone on this UTC day, by what was seen up to the last {@link current}. */
  due(today: string): readonly string[];
  /** Would nothing of this line be published, held against what is known? */
  saysNothing(at: string, line: Pick<RunLine, "cap" | "cards">): boolean;
}

const NOBODY: ReadonlySet<string> = new Set();

/**
 * What is published, followed from the public store by a process that publishes nothing: it holds no key and writes
 * nothing. May be some seconds old; whoever acts on it is compared again by the publisher.
 */
export class Followed implements PublishedRecord {
  readonly fold = new PublishedFold();
  readonly #due = new DueDays(this.fold);
  readonly #tree: PublishedTree;

  /** @param trust whose checkpoints are believed now */
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
    if (snapshot) await this.fold.readOn(snapshot.reader);
    return this.fold;
  }

  due(today: string): string[] {
    return this.#due.due(today, NOBODY);
  }

  saysNothing(at: string, line: Pick<RunLine, "cap" | "cards">): boolean {
    return saysNothingNew(this.fold.caps.get(line.cap), at, line);
  }
}
