import { ArchiveFold } from "../../pipelines/published/fold.ts";
import type { EvidenceLeaf } from "../../pipelines/record/leaf.ts";
import type { Positions, VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Entry } from "./entry.ts";
import { LayeredMap } from "./layered.ts";
import { UrlIndex } from "./names.ts";
import { PayeeTable } from "./payees.ts";
import { TheftTable } from "./thefts.ts";

/** A row, and the live file that it came with. */
export interface FoldedRow extends VolatileRow {
  file: string;
}

/** The volatile rows of one `live/view.json`. */
export interface Volatile {
  /** Etag of the view that named them, or null before the first. */
  etag: string | null;
  /** When it was made, unix ms, or null before the first. */
  madeAt: number | null;
  /** Size of the tree that their counts refer to. */
  treeSize: number;
  /** Those behind the rows. */
  positions: Positions;
  /**
   * Live files that are folded in, in the view's order, and of how many rows each one is the newest. One that is named again
   * is not read again, since keys are never used twice.
   */
  files: ReadonlyMap<string, number>;
  /** The newest row of every capability. */
  rows: LayeredMap<FoldedRow>;
  /** Those of them that name thefts, by payee and domain. */
  thefts: TheftTable;
  /** Bucket -> key of its history file: prices and latencies day by day, read when somebody looks. */
  history: ReadonlyMap<number, string>;
}

export const NO_VOLATILE: Volatile = {
  etag: null,
  madeAt: null,
  treeSize: 0,
  positions: {},
  files: new Map(),
  rows: LayeredMap.empty(),
  thefts: TheftTable.empty,
  history: new Map(),
};

/** Who holds which published facts, and how fresh they are. */
export interface ViewParts {
  /** Name of the log, as its checkpoint says it. */
  origin: string;
  /** Leaves that are folded in. */
  size: number;
  entries: LayeredMap<Entry>;
  volatile: Volatile;
  names: UrlIndex;
  evidence: EvidenceFiles;
  archive: ArchiveFold;
}

/**
 * What every answer comes from: the fold of the tree to one size, and the volatile rows of one moment. Immutable; the
 * follower swaps the whole of it, so an answer never mixes two states and counts never go backwards.
 */
export class View {
  readonly origin: string;
  readonly size: number;
  readonly entries: LayeredMap<Entry>;
  readonly volatile: Volatile;
  readonly names: UrlIndex;
  readonly evidence: EvidenceFiles;
  /** Every file of the archive. It only grows, so views share it: each looks at the leaves below its own size. */
  readonly archive: ArchiveFold;
  #payees: PayeeTable | undefined;

  constructor(parts: ViewParts) {
    this.origin = parts.origin;
    this.size = parts.size;
    this.entries = parts.entries;
    this.volatile = parts.volatile;
    this.names = parts.names;
    this.evidence = parts.evidence;
    this.archive = parts.archive;
  }

  static empty(origin: string): View {
    const nothing = { size: 0, entries: LayeredMap.empty<Entry>(), volatile: NO_VOLATILE };
    const growing = { names: new UrlIndex(), evidence: new EvidenceFiles(), archive: new ArchiveFold() };
    return new View({ origin, ...nothing, ...growing });
  }

  entry(cap: string): Entry | undefined {
    return this.entries.get(cap);
  }

  row(cap: string): VolatileRow | undefined {
    return this.volatile.rows.get(cap);
  }

  /** Is this id in the record: published, or at least probed? */
  has(cap: string): boolean {
    return this.entries.get(cap) !== undefined || this.row(cap) !== undefined;
  }

  /**
   * Observations and withdrawals since the card, as the volatile rows count them. They refer to the card of the tree
   * they were made against: for a card that is newer they say nothing, and it was computed without withdrawn records.
   */
  since(cap: string, leaf: number | undefined): { observations: number; withdrawn: number } {
    const row = this.row(cap);
    if (!row || (leaf !== undefined && leaf >= this.volatile.treeSize)) return { observations: 0, withdrawn: 0 };
    return { observations: row.observations_since, withdrawn: row.withdrawn_since };
  }

  /** Who is paid by whom; made at the first question, where it was not prepared. */
  get payees(): PayeeTable {
    this.#payees ??= PayeeTable.of(this);
    return this.#payees;
  }

  /** Make at leisure what was asked of the view before this one: nobody who asks this one then waits for it. */
  async prepareLike({ isAskedOfPayees }: View): Promise<void> {
    if (isAskedOfPayees) this.#payees ??= await PayeeTable.inTurns(this);
  }

  get isAskedOfPayees(): boolean {
    return this.#payees !== undefined;
  }
}

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
class EvidenceFiles {
  readonly #newest = new Map<number, EvidenceFile[]>();

  add({ bucket, key, day, rows, holds }: EvidenceLeaf): void {
    if (holds !== "rows" || bucket === null || key === null) return;
    const known = this.#newest.get(bucket) ?? [];
    if (known.some((file) => file.key === key)) return;
    this.#newest.set(bucket, [{ day, key, rows }, ...known].slice(0, KEPT));
  }

  /** Newest day that any bucket has a file of, or null. */
  get newestDay(): string | null {
    let newest: string | null = null;
    for (const [file] of this.#newest.values()) if (newest === null || file!.day > newest) newest = file!.day;
    return newest;
  }

  /** Newest leaf first. */
  of(bucket: number): readonly EvidenceFile[] {
    return this.#newest.get(bucket) ?? [];
  }
}
