import { BadProposal, type Commit, isDataKey, type SegmentRef, SNAPSHOT_EVERY } from "./commit.ts";

/** State of the chain after one commit. */
export interface ChainHead {
  /** Number of the last commit, -1 before the first. */
  n: number;
  /** First position of the log that no commit covers. Reading continues there. */
  next: number;
  /** Event id of the log record at next - 1; null when the chain has no record yet or its last commit is a gap. */
  lastEventId: string | null;
  /**
   * The live data files, sorted by position. They do not overlap, and hold all records below `next` but those of
   * accepted gaps.
   */
  live: readonly SegmentRef[];
}

export const EMPTY_HEAD: ChainHead = { n: -1, next: 0, lastEventId: null, live: [] };

/**
 * Checks a commit against the head before it, and returns the head after it. Every commit is checked here before it is
 * written and after it is read.
 * @throws BadProposal with the rule that is broken
 */
export function applyCommit(head: ChainHead, commit: Commit, folder: string): ChainHead {
  if (commit.n !== head.n + 1) throw new BadProposal(`commit ${commit.n} cannot follow commit ${head.n}`);
  if (commit.first !== head.next) {
    throw new BadProposal(`commit ${commit.n} begins at ${commit.first}, commit ${head.n} ended at ${head.next}`);
  }
  if (commit.next === commit.first && commit.last_event_id !== head.lastEventId) {
    throw new BadProposal(`commit ${commit.n} moves nothing, yet names another last record`);
  }
  const removedFiles = new Set(commit.remove);
  const removedRefs = head.live.filter((ref) => removedFiles.has(ref.file));
  if (removedRefs.length !== commit.remove.length)
    throw new BadProposal(`commit ${commit.n} removes a file that is not live`);
  checkFiles(commit.add, folder);
  checkAddedPositions(commit);
  checkReplaced(commit, removedRefs);
  const keptRefs = head.live.filter((ref) => !removedFiles.has(ref.file));
  const names = new Set(head.live.map((ref) => ref.file));
  if (commit.add.some((ref) => names.has(ref.file))) throw new BadProposal(`commit ${commit.n} adds a live file again`);
  const live = [...keptRefs, ...commit.add].sort((a, b) => a.first - b.first);
  if (commit.live) checkSnapshot(commit, live);
  return { n: commit.n, next: commit.next, lastEventId: commit.last_event_id, live };
}

/**
 * Returns the head after a commit that holds a list of live files, without reading earlier commits. Rules that need
 * earlier commits (was a removed file live?) are checked by `applyCommit` when the history is read.
 * @throws BadProposal
 */
export function headOfSnapshot(commit: Commit, folder: string): ChainHead {
  const live = [...(commit.live ?? [])].sort((a, b) => a.first - b.first);
  checkFiles(live, folder);
  checkAddedPositions(commit);
  const names = new Set(live.map((ref) => ref.file));
  if (!commit.add.every((ref) => names.has(ref.file)) || commit.remove.some((file) => names.has(file))) {
    throw new BadProposal(`commit ${commit.n} lists other files as live than it leaves`);
  }
  const covered = mergeRanges(live);
  if ((covered.at(-1)?.[1] ?? -1) >= commit.next) throw new BadProposal(`commit ${commit.n} lists files past its end`);
  return { n: commit.n, next: commit.next, lastEventId: commit.last_event_id, live };
}

/**
 * Checks that the new files cover exactly the positions that the commit adds (none for a gap), and that files with
 * earlier positions (replacements) are added if and only if files are removed.
 */
function checkAddedPositions(commit: Commit): void {
  const addedRanges = mergeRanges(commit.add.filter((ref) => ref.first >= commit.first));
  const expectedRanges = commit.next > commit.first && !commit.gap ? [[commit.first, commit.next - 1]] : [];
  if (!isEqual(addedRanges, expectedRanges)) {
    throw new BadProposal(
      `commit ${commit.n} covers ${formatRanges(addedRanges)} with new files instead of ${formatRanges(expectedRanges)}`,
    );
  }
  const hasReplacements = commit.add.some((ref) => ref.first < commit.first);
  if (hasReplacements !== commit.remove.length > 0) {
    throw new BadProposal(`commit ${commit.n} removes files without a replacement, or replaces none`);
  }
}

/** Checks that the files that replace other files cover exactly the positions of the removed files. */
function checkReplaced(commit: Commit, removed: readonly SegmentRef[]): void {
  const replacedRanges = mergeRanges(commit.add.filter((ref) => ref.first < commit.first));
  if (!isEqual(replacedRanges, mergeRanges(removed))) {
    throw new BadProposal(
      `commit ${commit.n} replaces ${formatRanges(mergeRanges(removed))} by ${formatRanges(replacedRanges)}`,
    );
  }
}

function checkFiles(refs: readonly SegmentRef[], folder: string): void {
  for (const { file, first, last, rejects } of refs) {
    const isSound = isDataKey(folder, file, first, last, "parquet");
    if (!isSound || (rejects && !isDataKey(folder, rejects.file, first, last, "rejected"))) {
      throw new BadProposal(`${file} is no file of this chain with ${first} to ${last}`);
    }
  }
}

function checkSnapshot(commit: Commit, live: readonly SegmentRef[]): void {
  const listedFiles = (commit.live ?? []).map((ref) => `${ref.file} ${ref.sha256}`).sort();
  if (!isEqual(listedFiles, live.map((ref) => `${ref.file} ${ref.sha256}`).sort())) {
    throw new BadProposal(`commit ${commit.n}, one of every ${SNAPSHOT_EVERY}, lists other files than are live`);
  }
}

/**
 * Returns the positions of the files as the smallest number of ranges [first, last]. @throws BadProposal when two files
 * overlap
 */
function mergeRanges(refs: readonly SegmentRef[]): number[][] {
  const ranges: number[][] = [];
  for (const { file, first, last } of [...refs].sort((a, b) => a.first - b.first)) {
    const lastRange = ranges.at(-1);
    if (lastRange && first <= lastRange[1]!) throw new BadProposal(`${file} holds positions that another file holds`);
    if (lastRange && first === lastRange[1]! + 1) lastRange[1] = last;
    else ranges.push([first, last]);
  }
  return ranges;
}

const isEqual = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
const formatRanges = (ranges: number[][]): string => ranges.map((r) => r.join("..")).join(", ") || "nothing";
