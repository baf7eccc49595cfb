import { NO_RELATED_PARTIES_SHA256 } from "../3-grade/related.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type {
  ArchiveLeaf,
  CommitmentLeaf,
  EvidenceLeaf,
  GradeLeaf,
  IndexLeaf,
  Leaf,
  ListingLeaf,
  ReceiptLeaf,
} from "../record/leaf.ts";
import { addDays } from "../record/time.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { headlineOf, PUBLISHED_PROJECTION, type PublishedCap } from "./caps.ts";
import { applyLeafToEndpoint, endpointOf } from "./endpoint.ts";
import type { RecordReader } from "./reader.ts";
import { RelatedPartiesFold } from "./related-parties.ts";

/** The newest market index, as `hint/index.json` names it; `table` is the key of its Parquet file. */
export interface NewestIndex {
  tree_size: number;
  key: string;
  leaf: number;
  table?: string;
}

export const toNewestIndex = ({ tree_size, key, index: leaf, table }: IndexLeaf): NewestIndex => ({
  ...{ tree_size, key, leaf },
  ...(table && { table: table.key }),
});

/**
 * The state of everything published, computed only from the leaves (entries of the log) in order. Publisher and
 * auditor therefore get the same state from the same log. It is kept in memory.
 */
export class PublishedFold {
  /** Number of leaves applied, which is the index of the next leaf. */
  size = 0;
  /** Next `seq` of each kind of leaf: leaves are also numbered within their kind. */
  readonly nextSeq = new Map<string, number>();
  readonly caps = new Map<string, PublishedCap>();
  /**
   * By UTC day: the hash of the schedule's secret salt and the time at which it was published first, and the salt once
   * a later leaf has revealed it.
   */
  readonly schedules = new Map<string, { salt_hash: string; at: string; salt: string | null }>();
  keys: { n: number; key: string; sha256: string; leaf: number } | null = null;
  index: NewestIndex | null = null;
  readonly evidence = new EvidenceFold();
  readonly archive = new ArchiveFold();
  readonly commitments = new CommitmentFold();
  /** Hashes of receipts, each once. */
  readonly receipts = new CommitmentFold();
  readonly relatedParties = new RelatedPartiesFold();
  /** Time (`at`) of the newest leaf, "" before the first. */
  newest = "";
  readonly #listeners = new Set<(cap: string) => void>();
  /** Number of leaves that were skipped, and how many of these were skipped before the newest leaf of each kind. */
  #skippedLeaves = 0;
  readonly #skippedWhenSeen = new Map<string, number>();

  /**
   * Calls `listener` with the id of an endpoint before a leaf changes it.
   * @returns a function that removes the listener
   */
  onChange(listener: (cap: string) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Applies the next leaf.
   * @param entry bytes of the leaf, if the caller has them: the text of a card is cut out of them
   * @throws Error when the leaf is not the next one, by its index or by its `seq` within its kind
   */
  apply(leaf: Leaf, entry?: Buffer): void {
    const seq = this.nextSeq.get(leaf.kind) ?? 0;
    const unseenLeaves = this.#skippedLeaves - (this.#skippedWhenSeen.get(leaf.kind) ?? 0);
    if (leaf.index !== this.size || !(leaf.seq >= seq && leaf.seq <= seq + unseenLeaves)) {
      throw new Error(`leaf ${leaf.kind} ${leaf.index}/${leaf.seq} is not the next one (${this.size}/${seq})`);
    }
    this.size++;
    this.nextSeq.set(leaf.kind, leaf.seq + 1);
    this.#skippedWhenSeen.set(leaf.kind, this.#skippedLeaves);
    this.newest = leaf.at;
    const cap = endpointOf(leaf);
    if (cap !== null) this.#applyToEndpoint(cap, leaf, entry);
    this.evidence.apply(leaf);
    this.archive.apply(leaf);
    switch (leaf.kind) {
      case "schedule":
        // The first hash of a day is binding. A later one could be chosen to fit the calls that were made.
        if (!this.schedules.has(leaf.day))
          this.schedules.set(leaf.day, { salt_hash: leaf.salt_hash, at: leaf.at, salt: null });
        if (leaf.opens) this.#revealSalt(leaf.opens);
        return;
      case "keys":
        this.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: leaf.index };
        return;
      case "index":
        this.index = toNewestIndex(leaf);
        return;
      case "commitment":
        this.commitments.add(leaf);
        return;
      case "receipt":
        this.receipts.add(leaf);
        return;
      case "kin":
        this.relatedParties.apply(leaf);
    }
  }

  /** Skips leaves that cannot be read any more. Only an auditor does this; the state is incomplete afterwards. */
  skip(count: number): void {
    this.size += count;
    this.#skippedLeaves += count;
  }

  /**
   * Applies the reader's leaves from `size` on. After an error the leaves before it stay applied.
   * @throws what the reader throws
   */
  async readNewLeaves(reader: Pick<RecordReader, "leaves">): Promise<void> {
    for await (const { leaf, bytes } of reader.leaves(this.size)) this.apply(leaf, bytes);
  }

  #applyToEndpoint(cap: string, leaf: Leaf, entry: Buffer | undefined): void {
    for (const listener of this.#listeners) listener(cap);
    this.caps.set(
      cap,
      applyLeafToEndpoint(
        this.caps.get(cap) ?? PUBLISHED_PROJECTION.createEndpoint(cap),
        leaf,
        PUBLISHED_PROJECTION,
        entry,
      ),
    );
  }

  #revealSalt(opens: { day: string; salt: string }): void {
    const schedule = this.schedules.get(opens.day);
    if (schedule) schedule.salt = opens.salt;
  }
}

/**
 * The input of a published headline card: the time at which it was graded (RFC 3339), and the position up to which the
 * grading run had read the event log: {topic: next offset}. `leaf` is the index of the card's leaf.
 */
export interface HeadlineBasis {
  leaf: number;
  at: string;
  read: Readonly<Record<string, number>>;
}

/** Returns the input of an endpoint's published headline card; undefined for an endpoint without one. */
export function headlineBasisOf(fold: PublishedFold, cap: string): HeadlineBasis | undefined {
  const published = fold.caps.get(cap);
  const headline = published && headlineOf(published);
  return headline ? { leaf: headline.leaf, at: published.computedAt, read: published.positions } : undefined;
}

/**
 * Hashes of the published commitments (or receipts). Each is published once, so no hash is ever dropped: a record that
 * arrives late could then be published twice. A hash is kept as a string of its 32 bytes, about 80 bytes of memory.
 */
export class CommitmentFold {
  readonly #hashes = new Set<string>();

  /** @returns false when the hash was added before */
  add({ sha256 }: Pick<CommitmentLeaf | ReceiptLeaf, "sha256">): boolean {
    const sizeBefore = this.#hashes.size;
    return this.#hashes.add(packHash(sha256)).size > sizeBefore;
  }

  has(sha256: string): boolean {
    return this.#hashes.has(packHash(sha256));
  }

  get size(): number {
    return this.#hashes.size;
  }
}

/** Converts a hash from 64 hex digits to a string of 32 characters, one for each byte. */
const packHash = (sha256: string): string => Buffer.from(sha256, "hex").toString("latin1");

/**
 * One UTC day of evidence: how often its files were published (a close of the day), and up to which position of the
 * event log the records in its files were read.
 */
interface ClosedDay {
  closes: number;
  /**
   * Bucket (a fixed share of the endpoints) -> {topic: next offset} of its newest file. A bucket without a file of
   * this day is absent.
   */
  buckets: Map<number, Record<string, number>>;
}

/**
 * The published evidence, computed from the leaves: which UTC days are closed, and up to which position of the event
 * log the records in their files were read.
 */
export class EvidenceFold {
  readonly days = new Map<string, ClosedDay>();
  /** The day that was closed first, "" before that. Later days are closed in order and without a gap. */
  firstDay = "";
  /** Newest day that was closed, "" before the first. */
  newest = "";
  /**
   * Tables of related parties (payees and domains that took money) that cards name and no file contains yet: day ->
   * hash of the table -> first leaf that names it.
   */
  readonly relatedParties = new Map<string, Map<string, number>>();

  /**
   * Returns whether this day may be closed for the first time. Any day may be the first of all. After that the day must
   * be the one after `newest`, so that no day is left out, or a day before the first closed day. Records of such an
   * early day exist when a clock was wrong or the log is older than the evidence.
   */
  mayClose(day: string, newest = this.newest): boolean {
    return newest === "" || day === addDays(newest, 1) || day < this.firstDay;
  }

  /** Applies a leaf of any kind. */
  apply(leaf: Leaf): void {
    if (leaf.kind === "grade") this.#applyGrade(leaf);
    if (leaf.kind === "evidence") this.#applyEvidence(leaf);
  }

  #applyGrade({ day, index, inputs }: GradeLeaf): void {
    if (inputs.kin === NO_RELATED_PARTIES_SHA256) return;
    const tables = this.relatedParties.get(day) ?? new Map<string, number>();
    if (!tables.has(inputs.kin)) tables.set(inputs.kin, index);
    this.relatedParties.set(day, tables);
  }

  #applyEvidence(leaf: EvidenceLeaf): void {
    const day = this.days.get(leaf.day) ?? { closes: 0, buckets: new Map<number, Record<string, number>>() };
    day.closes = leaf.freeze + 1;
    if (leaf.holds === "rows" && leaf.bucket !== null) day.buckets.set(leaf.bucket, leaf.positions);
    this.days.set(leaf.day, day);
    this.firstDay ||= leaf.day;
    if (leaf.day > this.newest) this.newest = leaf.day;
    if (leaf.holds === "kin") this.#removeFiledTables(leaf.day, leaf.below ?? 0);
  }

  /** Removes the tables that a new file contains: those that the day's cards below leaf `belowLeaf` name. */
  #removeFiledTables(day: string, belowLeaf: number): void {
    const tables = this.relatedParties.get(day);
    if (!tables) return;
    for (const [sha256, leaf] of tables) if (leaf < belowLeaf) tables.delete(sha256);
    if (tables.size === 0) this.relatedParties.delete(day);
  }
}

/** Range [first, end) of leaf positions with the grades of one subject and day. Other leaves may lie between them. */
export interface LeafSpan {
  first: number;
  end: number;
}

const subjectDayKey = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;

/**
 * State of the published archive, computed from the leaves in order: its files, which of them were replaced, and which
 * leaves contain the grades of each subject and day.
 */
export class ArchiveFold {
  /** By manifest id, in log order. */
  readonly files = new Map<string, ArchiveLeaf>();
  /** Manifest id of a wrong file -> id of the one that replaced it. */
  readonly superseded = new Map<string, string>();
  /** Range of the grade leaves of each subject and UTC day. */
  readonly #gradeSpans = new Map<string, LeafSpan>();
  /** Endpoints that are tools of an MCP server -> first listing leaf that names the tool. */
  readonly #firstToolListing = new Map<string, number>();
  readonly #filesBySubjectDay = new Map<string, ArchiveLeaf[]>();

  /** Applies a leaf of any kind. */
  apply(leaf: Leaf): void {
    if (leaf.kind === "archive") this.#applyFile(leaf);
    if (leaf.kind === "grade") this.#applyGrade(leaf);
    if (leaf.kind === "listing") this.#applyListing(leaf);
  }

  #applyFile(leaf: ArchiveLeaf): void {
    const { manifest, supersedes } = leaf;
    this.files.set(manifest.id, leaf);
    if (supersedes !== null) this.superseded.set(supersedes, manifest.id);
    const name = subjectDayKey(manifest.subject, dayOfManifest(manifest));
    this.#filesBySubjectDay.set(name, [...(this.#filesBySubjectDay.get(name) ?? []), leaf]);
  }

  #applyGrade(leaf: GradeLeaf): void {
    const name = subjectDayKey(this.subjectOf(leaf), leaf.day);
    const span = this.#gradeSpans.get(name);
    if (span) span.end = leaf.index + 1;
    else this.#gradeSpans.set(name, { first: leaf.index, end: leaf.index + 1 });
  }

  #applyListing({ index, capability_id, tool }: ListingLeaf): void {
    if (tool !== null && !this.#firstToolListing.has(capability_id)) this.#firstToolListing.set(capability_id, index);
  }

  /** Returns the subject of a grade: `mcp_grades` if an earlier listing of its endpoint names an MCP tool. */
  subjectOf({ index, card }: Pick<GradeLeaf, "index" | "card">): "grades" | "mcp_grades" {
    return (this.#firstToolListing.get(card.capability_id) ?? index) < index ? "mcp_grades" : "grades";
  }

  /** Returns the range of leaves with grades of a subject and day that are in no archive file yet; null for none. */
  gradesToFile(subject: ArchiveSubject, day: string): LeafSpan | null {
    const span = this.#gradeSpans.get(subjectDayKey(subject, day));
    const filedUpTo = Math.max(0, ...this.filesOf(subject, day).map(({ positions }) => positions.tree?.["0"] ?? 0));
    return span && filedUpTo < span.end ? { first: Math.max(span.first, filedUpTo), end: span.end } : null;
  }

  /** All archive files of a subject and day, including replaced ones. */
  filesOf(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.#filesBySubjectDay.get(subjectDayKey(subject, day)) ?? [];
  }

  /** The leaf that names the file with this key; undefined if no leaf does. */
  leafOfKey(key: string): ArchiveLeaf | undefined {
    const [, subject = "", file = ""] = key.split("/");
    const [subjectOfKey, day] = [subject as ArchiveSubject, file.slice(0, 10)];
    return this.filesOf(subjectOfKey, day).find(
      ({ manifest }) => key === archiveFileKey(subjectOfKey, day, manifest.content_hash),
    );
  }

  /** Files of a subject and day that were not replaced. Together they contain each archived row once. */
  currentFilesOf(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.filesOf(subject, day).filter(({ manifest }) => !this.superseded.has(manifest.id));
  }
}
