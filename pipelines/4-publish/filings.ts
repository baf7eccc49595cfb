import type { ArchiveSubject } from "../record/vocabulary.ts";
import type { Plan, PublishedState } from "./committer.ts";
import type { Draft } from "./leaves.ts";

export type EvidenceDraft = Draft & { kind: "evidence" };

/** The evidence files of one close of a UTC day. They become neighbours in the log; all are published or none. */
export interface DayClose {
  day: string;
  /** 0 for the first close of the day; records that came late make a further close. */
  close: number;
  drafts: readonly EvidenceDraft[];
}

/**
 * Returns the leaves of these closes, or none when another publisher has closed one of the days meanwhile: its files
 * hold the same rows as ours.
 */
export function planDayCloses({ fold }: PublishedState, closes: readonly DayClose[]): Plan {
  const { evidence } = fold;
  let newestDay = evidence.newest;
  for (const { day, close } of closes) {
    const closesSoFar = evidence.days.get(day)?.closes ?? 0;
    if (closesSoFar !== close || (close === 0 && !evidence.mayClose(day, newestDay))) return { groups: [] };
    if (day > newestDay) newestDay = day;
  }
  return { groups: closes.map(({ drafts }) => drafts) };
}

export type ArchiveDraft = Draft & { kind: "archive" };

/** Archive files of one subject and UTC day to be published. */
export interface Filing {
  subject: ArchiveSubject;
  day: string;
  /** How many files of this subject and day were already published when `drafts` were made. */
  filesBefore: number;
  drafts: readonly ArchiveDraft[];
}

/**
 * Returns the leaves of these files. A subject and day that another publisher has filed since the files were made are left
 * out: both may hold the same rows, and no reader may see a row twice.
 */
export function planFilings({ fold }: PublishedState, filings: readonly Filing[]): Plan {
  const currentFilings = filings.filter(
    ({ subject, day, filesBefore: known }) => fold.archive.filesOf(subject, day).length === known,
  );
  return { groups: currentFilings.map(({ drafts }) => drafts).filter((drafts) => drafts.length > 0) };
}
