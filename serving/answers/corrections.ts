import { z } from "zod";
import type { CorrectionRecord } from "../../pipelines/record/volatile.ts";
import type { Correction } from "../schemas/common.ts";
import type { Entry } from "../tables/entry.ts";
import { bare, withSaying } from "../tables/fold.ts";
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
}

const Pending = z.array(
  z.object({ kind: z.enum(["correction", "dispute", "reinstated"]), body: z.record(z.string(), z.unknown()) }),
);

/**
 * Corrections and disputes of an endpoint: first those in the tree, then those that the volatile rows bring before
 * their leaves are published. A record whose leaf was published meanwhile is not repeated.
 */
export function correctionsOf(view: View, cap: string): EndpointCorrections {
  let entry: Entry = view.entry(cap) ?? bare(cap);
  for (const record of pendingOf(view, cap)) if (!isPublished(entry, record)) entry = withSaying(entry, record);
  const { corrections, disputes } = entry;
  return { corrections, disputes, disputed: disputes.some((one) => isOpen(entry, one)) };
}

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

function isPublished(entry: Entry, { kind, body }: CorrectionRecord): boolean {
  if (kind === "reinstated") return entry.takenBack.includes(String(body.correction));
  return (kind === "correction" ? entry.corrections : entry.disputes).some((one) => one.id === body.id);
}

/**
 * Is a dispute open? It is until a correction in force of its record, or of all records, follows (as in
 * sql/samples/touched, site).
 */
function isOpen({ corrections, takenBack }: Entry, { record_id, received_at }: Record<string, unknown>): boolean {
  const since = typeof received_at === "string" ? received_at : "";
  return !corrections.some(
    ({ id, recordId, issuedAt }) =>
      !takenBack.includes(id) && issuedAt >= since && (recordId == null || recordId === record_id),
  );
}
