import { z } from "zod";
import type { CorrectionRecord } from "../../pipelines/record/volatile.ts";
import type { Correction } from "../schemas/common.ts";
import type { View } from "../tables/view.ts";

/** Corrections and disputes of one endpoint, newest last. */
export interface EndpointCorrections {
  corrections: readonly Correction[];
  /**
   * Receipts of the sellers' disputes, with the members of the statement and its signature, so that anybody can verify
   * them.
   */
  disputes: readonly Record<string, unknown>[];
  /** Whether a dispute is open, that is, no correction in force (one that was not withdrawn) has answered it. */
  disputed: boolean;
  /** Ids of corrections that were withdrawn. The records that these corrections had withdrawn count again. */
  withdrawnCorrectionIds: readonly string[];
}

/** Column `corrected` of a volatile row: records about the endpoint, most of them not published in the log yet. */
const PendingRecords = z.array(
  z.object({ kind: z.enum(["correction", "dispute", "reinstated"]), body: z.record(z.string(), z.unknown()) }),
);

/** Corrections, disputes and reinstatements (each withdraws a correction) of one endpoint. */
type CorrectionState = Omit<EndpointCorrections, "disputed">;

const NO_CORRECTIONS: CorrectionState = { corrections: [], disputes: [], withdrawnCorrectionIds: [] };

/** Reads corrections, disputes and reinstatements, in the order in which they were made. */
export function readCorrections(records: readonly CorrectionRecord[]): CorrectionState {
  if (records.length === 0) return NO_CORRECTIONS;
  const [corrections, disputes, withdrawnCorrectionIds]: [Correction[], Record<string, unknown>[], string[]] = [
    [],
    [],
    [],
  ];
  for (const { kind, body } of records) {
    if (kind === "dispute") disputes.push(body);
    else if (kind === "correction") corrections.push(correctionOf(body));
    else {
      withdrawnCorrectionIds.push(textOrEmpty(body.correction));
      // A correction that was itself wrong stays in the list, since nothing that was published is hidden again.
      for (const [i, one] of corrections.entries())
        if (one.id === body.correction)
          corrections[i] = { ...one, says: `${one.says} (taken back: ${textOrEmpty(body.says)})` };
    }
  }
  return { corrections, disputes, withdrawnCorrectionIds };
}

const textOrEmpty = (value: unknown): string => (typeof value === "string" ? value : "");
const textOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);

const correctionOf = (body: Record<string, unknown>): Correction => ({
  id: textOrEmpty(body.id),
  fault: textOrEmpty(body.fault),
  says: textOrEmpty(body.says),
  issuedAt: textOrEmpty(body.issued_at),
  recordId: textOrNull(body.record_id),
  gradeAt: textOrNull(body.grade_at),
});

/**
 * Returns the corrections and disputes of an endpoint: first those that are published in the log, then those that
 * only its volatile row (the facts that change faster than a card) holds yet. A record in both is returned once.
 */
export function correctionsOf(view: View, cap: string): EndpointCorrections {
  const published = view.entry(cap)?.corrections ?? [];
  const state = readCorrections([...published, ...withoutPublished(published, unpublishedInRow(view, cap))]);
  return { ...state, disputed: state.disputes.some((one) => isOpen(state, one)) };
}

/**
 * Reports whether a correction in force withdraws this record. A correction without a record id withdraws all records
 * that were observed before it was issued (as `withdrawn` in sql/samples/touched.sql does).
 * @param record id of the record
 * @param at when the record was observed, RFC 3339
 */
export const isWithdrawn = (
  { corrections, withdrawnCorrectionIds }: EndpointCorrections,
  record: string,
  at: string,
): boolean =>
  corrections.some(
    ({ id, recordId, issuedAt }) =>
      !withdrawnCorrectionIds.includes(id) &&
      (recordId == null ? Date.parse(at) < Date.parse(issuedAt) : recordId === record),
  );

/** Returns the records that are not published yet, each once. */
function withoutPublished(
  published: readonly CorrectionRecord[],
  records: readonly CorrectionRecord[],
): CorrectionRecord[] {
  if (records.length === 0) return [];
  const known = new Set(published.map(correctionKey));
  return records.filter((record) => !known.has(correctionKey(record)) && known.add(correctionKey(record)));
}

/**
 * Returns a key by which copies are found: the id of a correction or dispute; for a reinstatement, the id of the
 * correction that it withdraws.
 */
const correctionKey = ({ kind, body }: CorrectionRecord): string =>
  `${kind} ${String(kind === "reinstated" ? body.correction : body.id)}`;

function unpublishedInRow(view: View, cap: string): readonly CorrectionRecord[] {
  const text = view.row(cap)?.corrected;
  if (text === undefined || text === "[]") return [];
  try {
    return PendingRecords.parse(JSON.parse(text));
  } catch {
    // The text was written by another version of this software and cannot be read. Its records are shown once they
    // are published in the log.
    return [];
  }
}

/**
 * Reports whether a dispute is open. A later correction in force closes it, if that correction names the dispute's
 * record or no record at all (as `site` in sql/samples/touched.sql does).
 */
function isOpen(
  { corrections, withdrawnCorrectionIds }: CorrectionState,
  { record_id, received_at }: Record<string, unknown>,
): boolean {
  const since = typeof received_at === "string" ? received_at : "";
  return !corrections.some(
    ({ id, recordId, issuedAt }) =>
      !withdrawnCorrectionIds.includes(id) && issuedAt >= since && (recordId == null || recordId === record_id),
  );
}
