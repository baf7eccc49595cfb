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
  const { evidence } = fold;
  let last = evidence.newest;
  for (const { day, freeze } of freezes) {
    const known = evidence.days.get(day)?.freezes ?? 0;
    if (known !== freeze || (freeze === 0 && !evidence.mayClose(day, last))) return { groups: [] };
    if (day > last) last = day;
  }
  return { groups: freezes.map(({ drafts }) => drafts) };
}
