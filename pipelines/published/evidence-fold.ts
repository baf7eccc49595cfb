import { RelatedParties } from "../3-grade/related.ts";
import type { EvidenceLeaf, GradeLeaf } from "../record/leaf.ts";
import { addDays } from "../record/time.ts";

/** The table of related parties (payees and domains of thieves) that holds nobody: every run before the first theft. No file holds it. */
export const NO_RELATED_PARTIES = new RelatedParties([]).sha256;

/** What the closes of one UTC day have read. */
export interface ClosedDay {
  closes: number;
  /** Bucket -> {topic: next offset} of its newest file. A bucket that is not here has no file of this day. */
  buckets: Map<number, Record<string, number>>;
}

/** What is published of the evidence, as a fold of the leaves: which days are closed, and how far each was read. */
export class EvidenceFold {
  readonly days = new Map<string, ClosedDay>();
  /** The day that was closed first, "" before it. From it on days are closed in order and without a gap. */
  first = "";
  /** Newest day that was closed, "" before the first. */
  newest = "";
  /** Tables that cards name and no file holds yet: day -> hash of the table -> first leaf that names it. */
  readonly relatedParties = new Map<string, Map<string, number>>();

  /**
   * May this day be closed for the first time after `newest`? The next one, so that a missing one shows. A day before the first one has records all the same where a clock was
   * wrong or a log older than the evidence was joined: were it refused, nothing after it could ever be published.
   */
  mayClose(day: string, newest = this.newest): boolean {
    return newest === "" || day === addDays(newest, 1) || day < this.first;
  }

  grade({ day, index, inputs }: Pick<GradeLeaf, "day" | "index" | "inputs">): void {
    if (inputs.kin === NO_RELATED_PARTIES) return;
    const tables = this.relatedParties.get(day) ?? new Map<string, number>();
    if (!tables.has(inputs.kin)) tables.set(inputs.kin, index);
    this.relatedParties.set(day, tables);
  }

  evidence(leaf: EvidenceLeaf): void {
    const day = this.days.get(leaf.day) ?? { closes: 0, buckets: new Map<number, Record<string, number>>() };
    day.closes = leaf.freeze + 1;
    if (leaf.holds === "rows" && leaf.bucket !== null) day.buckets.set(leaf.bucket, leaf.positions);
    this.days.set(leaf.day, day);
    this.first ||= leaf.day;
    if (leaf.day > this.newest) this.newest = leaf.day;
    if (leaf.holds === "kin") this.#heldBelow(leaf.day, leaf.below ?? 0);
  }

  /** A file holds the tables of this day's cards below a leaf; a table named again after it is missing again. */
  #heldBelow(day: string, below: number): void {
    const tables = this.relatedParties.get(day);
    if (!tables) return;
    for (const [sha256, leaf] of tables) if (leaf < below) tables.delete(sha256);
    if (tables.size === 0) this.relatedParties.delete(day);
  }
}
