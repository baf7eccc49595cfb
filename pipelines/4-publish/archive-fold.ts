import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf, GradeLeaf, ListingLeaf } from "../record/leaf.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import type { Before, Plan } from "./committer.ts";
import type { Draft } from "./leaves.ts";

export type ArchiveDraft = Draft & { kind: "archive" };

/** Files of one subject and UTC day that are to be published; nothing when somebody filed that day meanwhile. */
export interface Filing {
  subject: ArchiveSubject;
  day: string;
  /** Files of this subject and day that were published when these were made. */
  known: number;
  drafts: readonly ArchiveDraft[];
}

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
  /** Capabilities that are tools of an MCP server: their grades are `mcp_grades`. */
  readonly tools = new Set<string>();
  /** Where the grades of each UTC day lie. */
  readonly grades = new Map<string, LeafSpan>();
  readonly #days = new Map<string, ArchiveLeaf[]>();

  archive(leaf: ArchiveLeaf): void {
    const { manifest, supersedes } = leaf;
    this.files.set(manifest.id, leaf);
    if (supersedes !== null) this.superseded.set(supersedes, manifest.id);
    const name = nameOf(manifest.subject, dayOfManifest(manifest));
    this.#days.set(name, [...(this.#days.get(name) ?? []), leaf]);
  }

  grade({ day, index }: Pick<GradeLeaf, "day" | "index">): void {
    const span = this.grades.get(day);
    if (span) span.end = index + 1;
    else this.grades.set(day, { first: index, end: index + 1 });
  }

  listing({ capability_id, tool }: Pick<ListingLeaf, "capability_id" | "tool">): void {
    if (tool !== null) this.tools.add(capability_id);
  }

  /** Files of a subject and day, the replaced ones too; none for a day that was not archived. */
  filed(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.#days.get(nameOf(subject, day)) ?? [];
  }

  /** Those of them that nobody replaced: together they hold every row of the day once. */
  standing(subject: ArchiveSubject, day: string): readonly ArchiveLeaf[] {
    return this.filed(subject, day).filter(({ manifest }) => !this.superseded.has(manifest.id));
  }

  /** Leaves below this are in the day's files, as far as they are grades of it. */
  gradesReadTo(subject: ArchiveSubject, day: string): number {
    return Math.max(0, ...this.filed(subject, day).map(({ positions }) => positions.tree?.["0"] ?? 0));
  }
}

/**
 * The leaves of these files, or none of a subject and day that somebody else filed since they were made: what he wrote
 * may be the same rows, and no reader may see a row twice.
 */
export function planFilings({ fold }: Before, filings: readonly Filing[]): Plan {
  const fresh = filings.filter(({ subject, day, known }) => fold.archive.filed(subject, day).length === known);
  return { groups: fresh.map(({ drafts }) => drafts).filter((drafts) => drafts.length > 0) };
}
