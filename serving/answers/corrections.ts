import { z } from "zod";
import type { CorrectionRecord } from "../../pipelines/record/volatile.ts";
import type { Correction } from "../schemas/common.ts";
import type { View } from "../tables/view.ts";

/** Corrections and disputes of one endpoint, newest last. */
export interface EndpointCorrections {
  corrections: readonly Correction[];
  /**
   * Receipts of the sellers' disputes, each with the members of its statement and the signature, so that anybody can
   * verify it.
   */
  disputes: readonly Record<string, unknown>[];
  /** Is there a dispute that no correction in force has answered? */
  disputed: boolean;
  /** Ids of corrections that were taken back: what they withdrew counts again. */
  takenBack: readonly string[];
}

const Pending = z.array(
  z.object({ kind: z.enum(["correction", "dispute", "reinstated"]), body: z.record(z.string(), z.unknown()) }),
);

/** What the records of one endpoint amount to. */
type Read = Omit<EndpointCorrections, "disputed">;

const NOTHING: Read = { corrections: [], disputes: [], takenBack: [] };

/** Corrections, disputes and reinstatements, in the order in which they were made. */
export function readCorrections(records: readonly CorrectionRecord[]): Read {
  if (records.length === 0) return NOTHING;
  const [corrections, disputes, takenBack]: [Correction[], Record<string, unknown>[], string[]] = [[], [], []];
  for (const { kind, body } of records) {
    if (kind === "dispute") disputes.push(body);
    else if (kind === "correction") corrections.push(correctionOf(body));
    else {
      takenBack.push(text(body.correction));
      // A correction that was itself wrong stays in the list: nothing that was published is hidden again.
      for (const [i, one] of corrections.entries())
        if (one.id === body.correction)
          corrections[i] = { ...one, says: `${one.says} (taken back: ${text(body.says)})` };
    }
  }
  return { corrections, disputes, takenBack };
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const textOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);

const correctionOf = (body: Record<string, unknown>): Correction => ({
  id: text(body.id),
  fault: text(body.fault),
  says: text(body.says),
  issuedAt: text(body.issued_at),
  recordId: textOrNull(body.record_id),
  gradeAt: textOrNull(body.grade_at),
});

/**
 * Corrections and disputes of an endpoint: first those in the tree, then those that the volatile rows bring before
 * their leaves are published. A record whose leaf was published meanwhile is not repeated.
 */
export function correctionsOf(view: View, cap: string): EndpointCorrections {
  const published = view.entry(cap)?.corrections ?? [];
  const read = readCorrections([...published, ...unpublishedOf(published, pendingOf(view, cap))]);
  return { ...read, disputed: read.disputes.some((one) => isOpen(read, one)) };
}

/**
 * Does a correction in force withdraw this record? One without a record id withdraws all that were observed before it was
 * issued (as in sql/samples/touched, withdrawn).
 */
export const isWithdrawn = ({ corrections, takenBack }: EndpointCorrections, record: string, at: string): boolean =>
  corrections.some(
    ({ id, recordId, issuedAt }) =>
      !takenBack.includes(id) && (recordId == null ? Date.parse(at) < Date.parse(issuedAt) : recordId === record),
  );

/** Records that are not published yet, each once. */
function unpublishedOf(
  published: readonly CorrectionRecord[],
  records: readonly CorrectionRecord[],
): CorrectionRecord[] {
  if (records.length === 0) return [];
  const known = new Set(published.map(nameOf));
  return records.filter((record) => !known.has(nameOf(record)) && known.add(nameOf(record)));
}

/** A correction or dispute by its own id, a reinstatement by the correction that it takes back. */
const nameOf = ({ kind, body }: CorrectionRecord): string =>
  `${kind} ${String(kind === "reinstated" ? body.correction : body.id)}`;

function pendingOf(view: View, cap: string): readonly CorrectionRecord[] {
  const text = view.row(cap)?.corrected;
  if (text === undefined || text === "[]") return [];
  try {
    return Pending.parse(JSON.parse(text));
  } catch {
    // Text of another version: its records will be shown when their leaves are published.
    return [];
  }
}

/**
 * Is a dispute open? It is until a correction in force of its record, or of all records, follows (as in
 * sql/samples/touched, site).
 */
function isOpen({ corrections, takenBack }: Read, { record_id, received_at }: Record<string, unknown>): boolean {
  const since = typeof received_at === "string" ? received_at : "";
  return !corrections.some(
    ({ id, recordId, issuedAt }) =>
      !takenBack.includes(id) && issuedAt >= since && (recordId == null || recordId === record_id),
  );
}
