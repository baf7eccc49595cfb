import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { Defect } from "../schemas/common.ts";
import type { Entry } from "./entry.ts";

/** What RFC 8785 cannot print, so what cannot be signed. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Defects that the newest listing names, with the members that an answer has. */
export const publishedDefects = (entry: Entry | undefined): Defect[] =>
  (entry?.listing?.defects ?? []).map(({ defect, says, seenAt }) => {
    return { defect, says, ...(seenAt === undefined ? {} : { seenAt }) };
  });

/**
 * Defects of the newest listing and 402. The volatile row is newer than the listing's leaf, so it goes first; text in
 * it that is no list of defects is as good as none, and the published ones stand.
 */
export function defectsOf(row: VolatileRow | undefined, entry: Entry | undefined): Defect[] {
  if (!row) return publishedDefects(entry);
  try {
    if (row.defects === "[]") return [];
    const defects = Defect.array().parse(JSON.parse(row.defects));
    return defects.some(({ defect, says }) => LONE_SURROGATE.test(`${defect} ${says}`))
      ? publishedDefects(entry)
      : defects;
  } catch {
    return publishedDefects(entry);
  }
}
