import type { Fact } from "./reading.ts";

/** A correction as the log holds it. */
export interface SaidCorrection {
  id: string;
  cap: string;
  /** null: every record observed before it was issued. */
  recordId: string | null;
  issuedAt: string;
}

/** What was said against the record, or taken back: the records of the topic `corrections`, in log order. */
export class Said {
  readonly corrections = new Map<string, SaidCorrection>();
  /** Ids of corrections that were taken back. */
  readonly reinstated = new Set<string>();
  /** Ids of disputes. */
  readonly disputes = new Set<string>();

  add({ type, key, body, observedAt }: Fact): void {
    if (type === "reinstated") this.reinstated.add(String(body.correction));
    if (type === "dispute") this.disputes.add(String(body.id));
    if (type !== "correction") return;
    const recordId = typeof body.record_id === "string" ? body.record_id : null;
    const issuedAt = typeof body.issued_at === "string" ? body.issued_at : observedAt;
    this.corrections.set(String(body.id), { id: String(body.id), cap: key, recordId, issuedAt });
  }

  /** The first correction in force that withdraws this record, or null when it counts. */
  withdrawing(recordId: string, observedAt: string): SaidCorrection | null {
    for (const one of this.corrections.values()) {
      if (this.reinstated.has(one.id)) continue;
      if (one.recordId === null ? observedAt < one.issuedAt : one.recordId === recordId) return one;
    }
    return null;
  }
}
