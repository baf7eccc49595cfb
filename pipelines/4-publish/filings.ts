import type { ArchiveSubject } from "../record/vocabulary.ts";
import type { CommitPlan, PublishedState } from "./committer.ts";
import type { Draft } from "./leaves.ts";

export type EvidenceDraft = Draft & { kind: "evidence" };

/**
 * One close of a UTC day: the evidence files that hold its records. They become neighbours in the log; all are
 * published or none.
 */
export interface DayClose {
  day: string;
  /**
   * 0 for the first close of the day. Records that arrive later are published in a further close, with the next number.
   */
  close: number;
  drafts: readonly EvidenceDraft[];
}

/**
 * Returns the leaves (log entries) of these closes, or none when one of the days cannot be closed with this number any
 * more: another publisher has closed that day meanwhile, with files that hold these rows already.
 */
export function planDayCloses({ fold }: PublishedState, closes: readonly DayClose[]): CommitPlan {
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

/** Archive files of one subject (a kind of row, such as `liveness_probes`) and UTC day, to be published. */
export interface Filing {
  subject: ArchiveSubject;
  day: string;
  /** How many files of this subject and day were already published when `drafts` were made. */
  filesBefore: number;
  drafts: readonly ArchiveDraft[];
}

/**
 * Returns the leaves (log entries) of these files. It leaves out the files of a subject and day for which another
 * publisher has published files since ours were made: its files and ours may hold the same rows, and no reader may see
 * a row twice.
 */
export function planFilings({ fold }: PublishedState, filings: readonly Filing[]): CommitPlan {
  const currentFilings = filings.filter(
    ({ subject, day, filesBefore }) => fold.archive.filesOf(subject, day).length === filesBefore,
  );
  return { groups: currentFilings.map(({ drafts }) => drafts).filter((drafts) => drafts.length > 0) };
}
