import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { Defect } from "../schemas/common.ts";
import type { Entry } from "./entry.ts";

/** Matches text that RFC 8785 cannot print, and which therefore cannot be signed. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Returns the defects of the newest published listing, with the members that answers have. */
export const publishedDefects = (entry: Entry | undefined): Defect[] =>
  (entry?.listing?.defects ?? []).map(({ defect, says, seenAt }) => {
    return { defect, says, ...(seenAt === undefined ? {} : { seenAt }) };
  });

/**
 * Returns the defects of an endpoint's newest listing and 402. The volatile row is newer than the published listing and
 * takes precedence; when its text is not a valid list of defects, the published ones are returned.
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
