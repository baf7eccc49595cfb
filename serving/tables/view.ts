import { RelatedParties } from "../../pipelines/3-grade/related.ts";
import type { NamedFile } from "../../pipelines/published/files.ts";
import { ArchiveFold } from "../../pipelines/published/fold.ts";
import type { EvidenceLeaf, ReceiptLeaf } from "../../pipelines/record/leaf.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { Positions, VolatileRow } from "../../pipelines/record/volatile.ts";
import { type Entry, headlineOf } from "./entry.ts";
import { LayeredMap } from "./layered-map.ts";
import { PayeeTable } from "./payees.ts";
import { type CountsSince, type ShownGrade, shownGrade } from "./shown.ts";
import { TheftTable } from "./thefts.ts";
import { UrlIndex } from "./url-index.ts";
import { WordIndex } from "./words.ts";

/**
 * A volatile row (the facts about an endpoint that change faster than its card), with the key of the file that holds
 * it.
 */
export interface FoldedRow extends VolatileRow {
  file: string;
}

/** The volatile rows that one version of `live/view.json` names. */
export interface VolatileRows {
  /** Etag of `live/view.json`; null before the first version was read. */
  etag: string | null;
  /** When that version of `live/view.json` was made, unix ms; null before the first, or if its time is unreadable. */
  madeAt: number | null;
  /** Size of the log when the rows were named. They were made from the log of that size or of a smaller one. */
  treeSize: number;
  /** For each topic and partition of the log, the position up to which its records are counted in the rows. */
  positions: Positions;
  /**
   * Keys of the files that were read, in the order of `live/view.json`, each with the number of endpoints whose
   * newest row it holds. Keys are never reused, so a file is read once.
   */
  files: ReadonlyMap<string, number>;
  /** The newest row of every endpoint, by capability id. */
  rows: LayeredMap<FoldedRow>;
  /** The endpoints whose rows name payments that were taken without a delivery, by payee and domain. */
  thefts: TheftTable;
  /** Capability ids of the endpoints whose rows count records behind the card that were withdrawn since. */
  withdrawn: ReadonlySet<string>;
  /** Key of the history file (daily prices and latencies) of each bucket, the group of endpoints that share a file. */
  history: ReadonlyMap<number, string>;
}

/** The volatile rows before the first `live/view.json`. */
export const NO_VOLATILE_ROWS: VolatileRows = {
  etag: null,
  madeAt: null,
  treeSize: 0,
  positions: {},
  files: new Map(),
  rows: LayeredMap.empty(),
  thefts: TheftTable.empty,
  withdrawn: new Set(),
  history: new Map(),
};

const NO_RELATED_PARTIES = new RelatedParties([]);

/** The parts of a view. */
export interface ViewParts {
  /** Name of the log, from its checkpoint. */
  origin: string;
  /** Number of leaves (entries of the log) that the view includes. */
  size: number;
  entries: LayeredMap<Entry>;
  volatile: VolatileRows;
  urlIndex: UrlIndex;
  wordIndex: WordIndex;
  evidence: EvidenceFiles;
  archive: ArchiveFold;
  receipts: ReceiptLeaves;
  related: RelatedParties;
}

/**
 * The state that answers are made from: the leaves of the log up to one size, combined (folded) into one entry for
 * each endpoint, and the volatile rows of one moment. Immutable; the follower replaces it as a whole, so an answer
 * never mixes two states and counts never decrease.
 */
export class View {
  readonly origin: string;
  readonly size: number;
  readonly entries: LayeredMap<Entry>;
  readonly volatile: VolatileRows;
  readonly urlIndex: UrlIndex;
  /** Text index of the listed endpoints, built at the first search. */
  readonly wordIndex: WordIndex;
  readonly evidence: EvidenceFiles;
  /**
   * The manifests of archived files. Views share this object, which only grows; each uses the leaves below its own
   * size.
   */
  readonly archive: ArchiveFold;
  /** The leaves of receipts that web/evidence issued. Views share this object, which only grows. */
  readonly receipts: ReceiptLeaves;
  /**
   * The table of related parties (endpoints with a common payee or domain) that the log's leaves hold. The volatile
   * tables are newer, where there are any.
   */
  readonly related: RelatedParties;
  #payees: PayeeTable | undefined;
  #doubtfulComposites: ReadonlyMap<string, number | null> | undefined;

  constructor(parts: ViewParts) {
    this.origin = parts.origin;
    this.size = parts.size;
    this.entries = parts.entries;
    this.volatile = parts.volatile;
    this.urlIndex = parts.urlIndex;
    this.wordIndex = parts.wordIndex;
    this.evidence = parts.evidence;
    this.archive = parts.archive;
    this.receipts = parts.receipts;
    this.related = parts.related;
  }

  static empty(origin: string): View {
    const emptyParts = {
      size: 0,
      entries: LayeredMap.empty<Entry>(),
      volatile: NO_VOLATILE_ROWS,
      related: NO_RELATED_PARTIES,
    };
    const sharedParts = {
      urlIndex: new UrlIndex(),
      wordIndex: new WordIndex(),
      evidence: new EvidenceFiles(),
      archive: new ArchiveFold(),
      receipts: new ReceiptLeaves(),
    };
    return new View({ origin, ...emptyParts, ...sharedParts });
  }

  entry(cap: string): Entry | undefined {
    return this.entries.get(cap);
  }

  row(cap: string): VolatileRow | undefined {
    return this.volatile.rows.get(cap);
  }

  /** Returns true if the record has an endpoint, published or at least probed. Returns false for any other id. */
  has(cap: string): boolean {
    return this.entries.get(cap) !== undefined || this.row(cap) !== undefined;
  }

  /**
   * Returns the numbers of observations and withdrawals since a card, from the volatile rows. A row counts from the
   * card that was the newest when the row was made, so for a newer card the result is zero.
   * @param leaf index of the card's leaf; undefined for an endpoint without a card
   */
  countsSince(cap: string, leaf: number | undefined): CountsSince {
    const row = this.row(cap);
    if (!row || !this.#countsFromCard(row, leaf)) return { observations: 0, withdrawn: 0 };
    return { observations: row.observations_since, withdrawn: row.withdrawn_since };
  }

  /**
   * Returns true if an endpoint has a row whose counts begin at this card, so that it was made after the card. Returns
   * false if its row counts from another card, and also if it has none.
   * @param leaf index of the card's leaf
   */
  hasRowSince(cap: string, leaf: number): boolean {
    const row = this.row(cap);
    return row !== undefined && this.#countsFromCard(row, leaf);
  }

  /**
   * Returns true if the counts of a row begin at this card, and false if they begin at another. Rows that an older
   * version of this software wrote do not name their card; they are taken to begin at every card that the log had at
   * `treeSize`.
   */
  #countsFromCard({ card_leaf }: VolatileRow, leaf: number | undefined): boolean {
    if (card_leaf === undefined) return leaf === undefined || leaf < this.volatile.treeSize;
    return card_leaf === (leaf ?? null);
  }

  /** Returns what GET /v1/check shows of an endpoint's card; null before the first one. */
  shownGrade(entry: Entry): ShownGrade | null {
    return shownGrade(entry, (leaf) => this.countsSince(entry.cap, leaf));
  }

  /**
   * The composite that is shown of each endpoint whose letter is not shown any more, because too many of the records
   * behind its card were withdrawn; by capability id.
   */
  get doubtfulComposites(): ReadonlyMap<string, number | null> {
    this.#doubtfulComposites ??= new Map(
      [...this.volatile.withdrawn].flatMap((cap) => {
        const entry = this.entry(cap);
        const shown = entry ? this.shownGrade(entry) : null;
        return shown?.isDoubtful ? [[cap, shown.composite] as const] : [];
      }),
    );
    return this.#doubtfulComposites;
  }

  /** Returns true if `doubtfulComposites` of another view holds the same composites of the same endpoints, else false. */
  hasSameDoubtfulComposites(other: View["doubtfulComposites"]): boolean {
    if (other === this.doubtfulComposites) return true;
    return (
      other.size === this.doubtfulComposites.size &&
      [...this.doubtfulComposites].every(([cap, shown]) => other.get(cap) === shown)
    );
  }

  /** Returns the letter that GET /v1/check shows of an endpoint; UNRATED if it has no card, or shows no letter. */
  bandOf(entry: Entry): Band {
    return this.doubtfulComposites.has(entry.cap) ? "UNRATED" : (headlineOf(entry)?.band ?? "UNRATED");
  }

  /** Returns the composite that is shown of an endpoint, by which endpoints with one letter are sorted; 0 for none. */
  compositeOf(entry: Entry): number {
    const shown = this.doubtfulComposites.get(entry.cap);
    return (shown === undefined ? headlineOf(entry)?.composite : shown) ?? 0;
  }

  /** Returns the table of payees, built at first use. */
  get payees(): PayeeTable {
    this.#payees ??= PayeeTable.build(this);
    return this.#payees;
  }

  /**
   * Builds the table of payees, yielding to the event loop, if the previous view used it, so that no request waits
   * for it.
   */
  async buildPayeesIfBuiltIn({ hasPayeeTable: hadPayeeTable }: View): Promise<void> {
    if (hadPayeeTable) this.#payees ??= await PayeeTable.buildYielding(this);
  }

  /** True once the table of payees was built. */
  get hasPayeeTable(): boolean {
    return this.#payees !== undefined;
  }
}

/**
 * Number of newest evidence files that are remembered for each bucket (a group of endpoints that share files). A bucket
 * gets about one file a day, so these files span more days than the grading window. Older files are named only in the
 * log.
 */
const MAX_FILES_PER_BUCKET = 200;

/**
 * An evidence file (published records of one bucket and day), with the hash and size that its leaf states for its
 * compressed and for its uncompressed bytes.
 */
export type EvidenceFile = NamedFile & { day: string };

/**
 * The newest evidence files of each bucket. Pages name them, and failed calls are read from them. Views share this
 * object, which only grows, since leaves never change.
 */
class EvidenceFiles {
  readonly #newestByBucket = new Map<number, EvidenceFile[]>();
  #newestDay: string | null = null;

  add({ bucket, key, day, rows, holds, sha256, bytes, unpacked_sha256, unpacked_bytes }: EvidenceLeaf): void {
    if (holds !== "rows" || bucket === null || key === null || sha256 === null || unpacked_sha256 === null) return;
    if (this.#newestDay === null || day > this.#newestDay) this.#newestDay = day;
    const files = this.#newestByBucket.get(bucket) ?? [];
    if (files.some((file) => file.key === key)) return;
    const file = { day, key, rows, sha256, bytes, unpacked_sha256, unpacked_bytes };
    this.#newestByBucket.set(bucket, [file, ...files].slice(0, MAX_FILES_PER_BUCKET));
  }

  /** The newest day with a file in any bucket, or null. Replacing a file of an older day does not change it. */
  get newestDay(): string | null {
    return this.#newestDay;
  }

  /** Returns the files of a bucket, the newest leaf first. */
  filesOf(bucket: number): readonly EvidenceFile[] {
    return this.#newestByBucket.get(bucket) ?? [];
  }
}

/**
 * Position of each receipt's leaf in the log, by the hash of the receipt. Each takes some 120 bytes of memory.
 */
class ReceiptLeaves {
  readonly #leaves = new Map<string, number>();

  add({ sha256, index }: ReceiptLeaf): void {
    this.#leaves.set(packHash(sha256), index);
  }

  /** Returns the index of a receipt's leaf, or undefined. @param sha256 hash of the receipt, 64 hex digits */
  leafIndexOf(sha256: string): number | undefined {
    return this.#leaves.get(packHash(sha256));
  }
}

const packHash = (sha256: string): string => Buffer.from(sha256, "hex").toString("latin1");
