import { NO_RELATED_PARTIES } from "../3-grade/related.ts";
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
import { headlineOf, PUBLISHED, type PublishedCap } from "./caps.ts";
import { endpointOf, nextEndpoint } from "./endpoint.ts";
import type { RecordReader } from "./reader.ts";
import { RelatedPartiesFold } from "./related-parties.ts";

/** The newest index, in the form of its hint; `table` is the key of its Parquet file. */
export interface NewestIndex {
  tree_size: number;
  key: string;
  leaf: number;
  table?: string;
}

export const newestIndex = ({ tree_size, key, index: leaf, table }: IndexLeaf): NewestIndex => ({
  ...{ tree_size, key, leaf },
  ...(table && { table: table.key }),
});

/**
 * What is published, folded from the leaves in order and from nothing else, so publisher and auditor get the same state
 * from the same log. Followers of the log keep it in memory.
 */
export class PublishedFold {
  /** Leaves folded: the next one expected. */
  size = 0;
  /** Next `seq` of each kind. */
  readonly nextSeq = new Map<string, number>();
  readonly caps = new Map<string, PublishedCap>();
  /** Hash of each day's salt, and the salt once it was opened. */
  readonly schedules = new Map<string, { salt_hash: string; salt: string | null }>();
  keys: { n: number; key: string; sha256: string; leaf: number } | null = null;
  index: NewestIndex | null = null;
  readonly evidence = new EvidenceFold();
  readonly archive = new ArchiveFold();
  readonly commitments = new CommitmentFold();
  /** Hashes of receipts, each once. */
  readonly receipts = new CommitmentFold();
  readonly relatedParties = new RelatedPartiesFold();
  /** `at` of the newest leaf, "" before the first. */
  newest = "";
  readonly #listeners = new Set<(cap: string) => void>();
  /** Leaves that were left out, and how many had been when a kind was last seen. */
  #skipped = 0;
  readonly #skippedAt = new Map<string, number>();

  /** Calls `listener` with the id of an endpoint before a leaf changes it. @returns a function that removes the listener */
  onChange(listener: (cap: string) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * @param entry bytes of the leaf, where the caller has them: the text of a card is cut out of them
   * @throws Error when a leaf is not the next one: its index or its seq leaves a gap.
   */
  apply(leaf: Leaf, entry?: Buffer): void {
    const seq = this.nextSeq.get(leaf.kind) ?? 0;
    const unseen = this.#skipped - (this.#skippedAt.get(leaf.kind) ?? 0);
    if (leaf.index !== this.size || !(leaf.seq >= seq && leaf.seq <= seq + unseen)) {
      throw new Error(`leaf ${leaf.kind} ${leaf.index}/${leaf.seq} is not the next one (${this.size}/${seq})`);
    }
    this.size++;
    this.nextSeq.set(leaf.kind, leaf.seq + 1);
    this.#skippedAt.set(leaf.kind, this.#skipped);
    this.newest = leaf.at;
    const cap = endpointOf(leaf);
    if (cap !== null) this.#endpoint(cap, leaf, entry);
    this.evidence.apply(leaf);
    this.archive.apply(leaf);
    switch (leaf.kind) {
      case "schedule":
        this.schedules.set(leaf.day, { salt_hash: leaf.salt_hash, salt: null });
        if (leaf.opens) this.#open(leaf.opens);
        return;
      case "keys":
        this.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: leaf.index };
        return;
      case "index":
        this.index = newestIndex(leaf);
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

  /** Leave out leaves that nobody can read any more. Only an auditor goes on after that: what it has then has a hole. */
  skip(count: number): void {
    this.size += count;
    this.#skipped += count;
  }

  /** Apply what the reader has beyond this. A call that ends early leaves a fold of fewer leaves. @throws as the reader does */
  async readOn(reader: Pick<RecordReader, "leaves">): Promise<void> {
    for await (const { leaf, bytes } of reader.leaves(this.size)) this.apply(leaf, bytes);
  }

  #endpoint(cap: string, leaf: Leaf, entry: Buffer | undefined): void {
    for (const listener of this.#listeners) listener(cap);
    this.caps.set(cap, nextEndpoint(this.caps.get(cap) ?? PUBLISHED.bare(cap), leaf, PUBLISHED, entry));
  }

  #open(opens: { day: string; salt: string }): void {
    const schedule = this.schedules.get(opens.day);
    if (schedule) schedule.salt = opens.salt;
  }
}

/** What a published headline stood on: the moment of its run (RFC 3339), and {topic: next offset} of what that had read. */
export interface Standing {
  at: string;
  read: Readonly<Record<string, number>>;
}

/** What the published headline of an endpoint stood on; undefined without one. */
export function standingOf(fold: PublishedFold, cap: string): Standing | undefined {
  const known = fold.caps.get(cap);
  return known && headlineOf(known) ? { at: known.computedAt, read: known.positions } : undefined;
}

/**
 * Commitments (or receipts) that the tree holds, by their hash; each is published once. One takes about 80 bytes of memory, as a string of its
 * 32 bytes. None is dropped with time, since a record may reach the log late.
 */
export class CommitmentFold {
  readonly #known = new Set<string>();

  /** @returns false when it was there already */
  add({ sha256 }: Pick<CommitmentLeaf | ReceiptLeaf, "sha256">): boolean {
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

/** What the closes of one UTC day have read. */
interface ClosedDay {
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
   * Whether this day may be closed for the first time: it is the day after `newest`, so that a missing day shows, or a day
   * before the first closed one. The latter has records where a clock was wrong, or a log older than the evidence was joined.
   */
  mayClose(day: string, newest = this.newest): boolean {
    return newest === "" || day === addDays(newest, 1) || day < this.first;
  }

  /** Applies a leaf of any kind. */
  apply(leaf: Leaf): void {
    if (leaf.kind === "grade") this.#grade(leaf);
    if (leaf.kind === "evidence") this.#evidence(leaf);
  }

  #grade({ day, index, inputs }: GradeLeaf): void {
    if (inputs.kin === NO_RELATED_PARTIES) return;
    const tables = this.relatedParties.get(day) ?? new Map<string, number>();
    if (!tables.has(inputs.kin)) tables.set(inputs.kin, index);
    this.relatedParties.set(day, tables);
  }

  #evidence(leaf: EvidenceLeaf): void {
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

/** Range [first, end) of leaf numbers with grades of one subject and day; other leaves may lie between them. */
export interface LeafSpan {
  first: number;
  end: number;
}

const nameOf = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;

/**
 * State of the published archive, built from the leaves of the log one by one: its files, which of them were replaced, and
 * which leaves hold the grades of each subject and day.
 */
export class ArchiveFold {
  /** By manifest id, in log order. */
  readonly files = new Map<string, ArchiveLeaf>();
  /** Manifest id of a wrong file -> id of the one that replaced it. */
  readonly superseded = new Map<string, string>();
  /** Where the grades of each subject and UTC day lie. */
  readonly #grades = new Map<string, LeafSpan>();
  /** Capabilities that are tools of an MCP server, and the first leaf that said so. */
  readonly #tools = new Map<string, number>();
  readonly #days = new Map<string, ArchiveLeaf[]>();

  /** Applies a leaf of any kind. */
  apply(leaf: Leaf): void {
    if (leaf.kind === "archive") this.#file(leaf);
    if (leaf.kind === "grade") this.#grade(leaf);
    if (leaf.kind === "listing") this.#listing(leaf);
  }

  #file(leaf: ArchiveLeaf): void {
    const { manifest, supersedes } = leaf;
    this.files.set(manifest.id, leaf);
    if (supersedes !== null) this.superseded.set(supersedes, manifest.id);
    const name = nameOf(manifest.subject, dayOfManifest(manifest));
    this.#days.set(name, [...(this.#days.get(name) ?? []), leaf]);
  }

  #grade(leaf: GradeLeaf): void {
    const name = nameOf(this.subjectOf(leaf), leaf.day);
    const span = this.#grades.get(name);
    if (span) span.end = leaf.index + 1;
    else this.#grades.set(name, { first: leaf.index, end: leaf.index + 1 });
  }

  #listing({ index, capability_id, tool }: ListingLeaf): void {
    if (tool !== null && !this.#tools.has(capability_id)) this.#tools.set(capability_id, index);
  }

  /** Subject of a grade: that of MCP tools when a listing before it names a tool. */
  subjectOf({ index, card }: Pick<GradeLeaf, "index" | "card">): "grades" | "mcp_grades" {
    return (this.#tools.get(card.capability_id) ?? index) < index ? "mcp_grades" : "grades";
  }

  /** Leaves that hold the grades of a subject and day which no file has read yet; null for none. */
  gradesToFile(subject: ArchiveSubject, day: string): LeafSpan | null {
    const span = this.#grades.get(nameOf(subject, day));
    const read = Math.max(0, ...this.filed(subject, day).map(({ positions }) => positions.tree?.["0"] ?? 0));
    return span && read < span.end ? { first: Math.max(span.first, read), end: span.end } : null;
  }

  /** Files of a subject and day, the replaced ones too; none for a day that was not archived. */
  filed(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.#days.get(nameOf(subject, day)) ?? [];
  }

  /** The leaf that names the file under this key. */
  at(key: string): ArchiveLeaf | undefined {
    const [, subject = "", file = ""] = key.split("/");
    const [of, day] = [subject as ArchiveSubject, file.slice(0, 10)];
    return this.filed(of, day).find(({ manifest }) => key === archiveFileKey(of, day, manifest.content_hash));
  }

  /** Files of a day that were not replaced. Together they hold every row of the day once. */
  standing(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.filed(subject, day).filter(({ manifest }) => !this.superseded.has(manifest.id));
  }
}
