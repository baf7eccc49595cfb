import { z } from "zod";
import type { CorrectionRecord } from "../../pipelines/record/volatile.ts";
import type { Correction } from "../schemas/common.ts";
import type { Entry } from "../tables/entry.ts";
import { bare, withSaying } from "../tables/fold.ts";
import type { View } from "../tables/view.ts";

/** Corrections and disputes of one endpoint, newest last. */
export interface EndpointCorrections {
  corrections: readonly Correction[];
  /** The sellers' own receipts: each with its statement's members and the signature, so that anybody verifies it. */
  disputes: readonly Record<string, unknown>[];
  /** Is there a dispute that no correction in force has answered? */
  disputed: boolean;
}

const Pending = z.array(
  z.object({ kind: z.enum(["correction", "dispute", "reinstated"]), body: z.record(z.string(), z.unknown()) }),
);

/**
 * Corrections and disputes of an endpoint: those of the tree, and behind them those that the volatile rows bring before
 * their leaves are there. A record whose leaf came meanwhile does not stand there twice.
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
    // Text of another version: what it says comes with its leaf.
    return [];
  }
}

function isPublished(entry: Entry, { kind, body }: CorrectionRecord): boolean {
  if (kind === "reinstated") return entry.takenBack.includes(String(body.correction));
  return (kind === "correction" ? entry.corrections : entry.disputes).some((one) => one.id === body.id);
}

/** Until a correction in force of the same record, or of all before it, follows (the same rule as in sql/samples/touched, site). */
function isOpen({ corrections, takenBack }: Entry, { record_id, received_at }: Record<string, unknown>): boolean {
  const since = typeof received_at === "string" ? received_at : "";
  return !corrections.some(
    ({ id, recordId, issuedAt }) =>
      !takenBack.includes(id) && issuedAt >= since && (recordId == null || recordId === record_id),
  );
}
