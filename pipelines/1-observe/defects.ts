import { DEFECTS, type DefectCode } from "../record/vocabulary.ts";

/** Defects once each, in the order they were met, in the words of the record. */
export const defectsSeen = (codes: readonly DefectCode[]): { defect: string; says: string }[] =>
  [...new Set(codes)].map((code) => ({ defect: code, says: DEFECTS[code] }));
