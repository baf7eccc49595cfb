import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { unknownDrafts } from "../4-publish/known.ts";
import type { CorrectionDraft } from "../4-publish/take-lines.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { CorrectionRecord } from "../record/volatile.ts";

interface Row {
  type: CorrectionDraft["kind"];
  cap: string;
  body: string;
  part: number;
  log_offset: bigint;
}

const draftOf = ({ type, cap, body, log_offset }: Row): CorrectionDraft => ({
  kind: type,
  capability_id: cap,
  position: Number(log_offset),
  body: JSON.parse(body) as Record<string, unknown>,
});

type Reader = Pick<Statements, "all">;

/**
 * Corrections that a run has read, as drafts of their leaves: a card may only be published as the consequence of one
 * that it knew. @param positions {topic: {partition: next offset}} of the run
 */
export async function correctionsBelow(
  lake: Reader,
  positions: Record<string, Record<string, number>>,
): Promise<CorrectionDraft[]> {
  const rows = await lake.all<Row>(sql("queries/record:corrections"));
  const next = positions.corrections ?? {};
  return rows.filter(({ part, log_offset }) => Number(log_offset) < (next[String(part)] ?? 0)).map(draftOf);
}

/**
 * What the log says and the tree does not yet, by capability: serving shows it before its leaf is there.
 * @param caps endpoints that are asked for (default: all)
 */
export async function unpublished(
  lake: Reader,
  fold: PublishedFold,
  caps?: ReadonlySet<string>,
): Promise<Map<string, CorrectionRecord[]>> {
  const rows = await lake.all<Row>(sql("queries/record:corrections"));
  const drafts = rows.filter(({ cap }) => caps?.has(cap) ?? true).map(draftOf);
  const byCap = new Map<string, CorrectionRecord[]>();
  for (const draft of unknownDrafts(fold, drafts) as CorrectionDraft[]) {
    const { kind, capability_id: cap, body } = draft;
    byCap.set(cap, [...(byCap.get(cap) ?? []), { kind, body }]);
  }
  return byCap;
}
