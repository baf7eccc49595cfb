import type { CommitmentLeaf } from "../record/leaf.ts";

/**
 * Commitments that the tree holds: each is published once, whoever says it again. About 80 bytes of memory a commitment,
 * as short strings of their 32 bytes; nothing is dropped with time, since a record may reach the log late.
 */
export class CommitmentFold {
  readonly #known = new Set<string>();

  /** @returns false when it was there already */
  add({ sha256 }: Pick<CommitmentLeaf, "sha256">): boolean {
    const before = this.#known.size;
    return this.#known.add(packed(sha256)).size > before;
  }

  has(sha256: string): boolean {
    return this.#known.has(packed(sha256));
  }

  get size(): number {
    return this.#known.size;
  }
}

const packed = (sha256: string): string => Buffer.from(sha256, "hex").toString("latin1");
