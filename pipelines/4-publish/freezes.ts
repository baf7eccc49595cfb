import type { Before, Plan } from "./committer.ts";
import type { Draft } from "./leaves.ts";

export type EvidenceDraft = Draft & { kind: "evidence" };

/** The files of one closing of a UTC day: neighbours in the log, all or none. */
export interface Freeze {
  day: string;
  /** 0 the first time; what came later is a further one. */
  freeze: number;
  drafts: readonly EvidenceDraft[];
}

/**
 * The leaves of these freezes, or none at all when another publisher froze one of the days meanwhile: what it read is in
 * its own files then, and ours would say the same rows twice.
 */
export function planFreezes({ fold }: Before, freezes: readonly Freeze[]): Plan {
  const { days, newest } = fold.evidence;
  let last = newest;
  for (const { day, freeze } of freezes) {
    const known = days.get(day)?.freezes ?? 0;
    // Days close in order, so that a missing one shows.
    if (known !== freeze || (freeze === 0 && day <= last)) return { groups: [] };
    if (day > last) last = day;
  }
  return { groups: freezes.map(({ drafts }) => drafts) };
}
