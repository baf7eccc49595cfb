import type { ListedClaim } from "../claims.ts";
import type { Rejected } from "./reasons.ts";

/** What became of the rows of a source. */
export interface IntakeReport {
  /** Items that were read, records that were new, items that could not be taken. */
  items: number;
  appended: number;
  refused: number;
  /** Items that say what stands already. */
  same: number;
  /** Rows that the source no longer names. */
  delisted: number;
  /** The refused ones, whole, with the reason. */
  rejected: Rejected[];
  /** Claims that were read, in order: the caller may act on those it asked for. */
  claims: ListedClaim[];
  says?: string;
}

export const emptyReport = (says?: string): IntakeReport => ({
  items: 0,
  appended: 0,
  refused: 0,
  same: 0,
  delisted: 0,
  rejected: [],
  claims: [],
  ...(says === undefined ? {} : { says }),
});

/** Rejected rows that a report over many sources keeps; all of them are counted. */
const MAX_TOLD = 10_000;

/** Adds what was read of one more source. */
export function addReport(to: IntakeReport, more: IntakeReport): void {
  to.items += more.items;
  to.appended += more.appended;
  to.refused += more.refused;
  to.same += more.same;
  to.delisted += more.delisted;
  for (const row of more.rejected) if (to.rejected.length < MAX_TOLD) to.rejected.push(row);
  for (const claim of more.claims) to.claims.push(claim);
}
