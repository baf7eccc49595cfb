import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import type { RunLine } from "../record/card.ts";
import { DueDays } from "./due.ts";
import { PublishedFold } from "./fold.ts";
import { RecordReader, readCheckpoint } from "./read.ts";
import { saysNothingNew } from "./take-lines.ts";

const NOBODY: ReadonlySet<string> = new Set();

/**
 * What is published, followed from the public store by a process that publishes nothing: it holds no key and writes
 * nothing. May be some seconds old; whoever acts on it is compared again by the publisher.
 */
export class Followed {
  readonly fold = new PublishedFold();
  readonly #due = new DueDays(this.fold);
  #root: Buffer | null = null;

  /** @param trust whose checkpoints are believed now */
  constructor(
    private readonly store: Pick<Store, "get">,
    private readonly trust: () => CheckpointTrust,
  ) {}

  /** Catch up with the newest checkpoint. @throws BadNote, MissingObject, Tampered */
  async current(): Promise<PublishedFold> {
    const head = await readCheckpoint(this.store, this.trust());
    if (!head || head.size <= this.fold.size) return this.fold;
    const reader = await RecordReader.open(this.store, head);
    if (this.#root && !(await reader.extends({ size: this.fold.size, root: this.#root })))
      throw new Error(`the checkpoint of ${head.size} leaves does not continue the one of ${this.fold.size}`);
    await this.fold.readOn(reader);
    this.#root = head.root;
    return this.fold;
  }

  /** Endpoints whose card may change by time alone on this UTC day. */
  due(today: string): string[] {
    return this.#due.due(today, NOBODY);
  }

  /** Would nothing of this line be published, held against what was followed? */
  saysNothing(at: string, line: Pick<RunLine, "cap" | "cards">): boolean {
    return saysNothingNew(this.fold.caps.get(line.cap), at, line);
  }
}
