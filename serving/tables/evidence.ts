import type { EvidenceLeaf } from "../../pipelines/record/leaf.ts";

/** Files that are remembered a bucket; the log names all of them. */
const KEPT = 8;

export interface EvidenceFile {
  day: string;
  key: string;
  rows: number;
}

/**
 * The newest evidence files of each bucket, for the pages that name them. It only grows, and says nothing that the tree
 * does not say for good, so views share it.
 */
export class EvidenceFiles {
  readonly #newest = new Map<number, EvidenceFile[]>();

  add({ bucket, key, day, rows, holds }: EvidenceLeaf): void {
    if (holds !== "rows" || bucket === null || key === null) return;
    const known = this.#newest.get(bucket) ?? [];
    if (known.some((file) => file.key === key)) return;
    this.#newest.set(bucket, [{ day, key, rows }, ...known].slice(0, KEPT));
  }

  /** Newest leaf first. */
  of(bucket: number): readonly EvidenceFile[] {
    return this.#newest.get(bucket) ?? [];
  }
}
