import { CommitmentFold } from "../published/fold.ts";
import { provenLeaves } from "../published/leaves.ts";
import type { Source } from "../published/source.ts";
import { commitTo, publishableAt } from "../record/commitment.ts";
import type { CommitmentLeaf } from "../record/leaf.ts";
import { Check, type Finding } from "./findings.ts";

/**
 * The commitments of a log: none stands in it twice, and none was published before its hour was over, when its own time
 * would have told more of the buyer than the hour. Their form is the leaf's; what they commit to only a buyer can show.
 */
export class CommitmentAudit {
  readonly #check = new Check("commitments");
  readonly #seen = new CommitmentFold();

  add({ index, at, moment, sha256 }: CommitmentLeaf): void {
    const key = `leaf ${index}`;
    const from = publishableAt(moment).toISOString();
    if (!this.#seen.add({ sha256 })) this.#check.bad({ key, expected: "a commitment once", got: `${sha256} again` });
    else if (at < from) this.#check.bad({ key, expected: `a commitment of ${moment} from ${from} on`, got: at });
    else this.#check.ok();
  }

  get finding(): Finding {
    return this.#check.finding;
  }
}

/** No leaf of the log commits to these bytes under this salt. */
export class NotCommitted extends Error {
  constructor(sha256: string, size: number) {
    super(
      `none of ${size} leaves is the commitment ${sha256}: other bytes, another salt, or its hour is not over and published yet`,
    );
    this.name = "NotCommitted";
  }
}

/**
 * The leaf that commits to these bytes under this salt, proven under the checkpoint: what a buyer shows to others. Reads
 * the log from its first leaf, one segment or bundle in memory.
 * @throws NotCommitted; RangeError for a salt of another length; Tampered, MissingObject and what a source throws
 */
export async function openCommitment(
  source: Source,
  head: { size: number; root: Buffer },
  salt: Uint8Array,
  bytes: Uint8Array,
  onProgress: (leaves: number) => void = () => undefined,
): Promise<CommitmentLeaf> {
  const sha256 = commitTo(salt, bytes);
  for await (const { index, leaf } of provenLeaves(source, head)) {
    if (index % 1024 === 0) onProgress(index);
    if (leaf.kind === "commitment" && leaf.sha256 === sha256) return leaf;
  }
  throw new NotCommitted(sha256, head.size);
}
