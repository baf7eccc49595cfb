import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf, GradeLeaf, ListingLeaf } from "../record/leaf.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";

/** Leaves [first, end) that hold every grade of a day, and others between them. */
export interface LeafSpan {
  first: number;
  end: number;
}

const nameOf = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;

/** What is published of the archive, as a fold of the leaves. */
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

  archive(leaf: ArchiveLeaf): void {
    const { manifest, supersedes } = leaf;
    this.files.set(manifest.id, leaf);
    if (supersedes !== null) this.superseded.set(supersedes, manifest.id);
    const name = nameOf(manifest.subject, dayOfManifest(manifest));
    this.#days.set(name, [...(this.#days.get(name) ?? []), leaf]);
  }

  grade(leaf: Pick<GradeLeaf, "day" | "index" | "card">): void {
    const name = nameOf(this.subjectOf(leaf), leaf.day);
    const span = this.#grades.get(name);
    if (span) span.end = leaf.index + 1;
    else this.#grades.set(name, { first: leaf.index, end: leaf.index + 1 });
  }

  listing({ index, capability_id, tool }: Pick<ListingLeaf, "index" | "capability_id" | "tool">): void {
    if (tool !== null && !this.#tools.has(capability_id)) this.#tools.set(capability_id, index);
  }

  /** A grade is of a tool when a listing below it says so: the same for whoever reads the log. */
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

  /** Those of them that nobody replaced: together they hold every row of the day once. */
  standing(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.filed(subject, day).filter(({ manifest }) => !this.superseded.has(manifest.id));
  }
}
