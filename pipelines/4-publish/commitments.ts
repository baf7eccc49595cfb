import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { momentOf } from "../record/commitment.ts";
import type { PublishedFold } from "./fold.ts";
import type { Draft } from "./leaves.ts";

export type CommitmentDraft = Draft & { kind: "commitment" };

interface Row {
  cap: string;
  sha256: string;
  t: Date;
}

/**
 * Commitments of the lake that the tree does not hold and whose hour is over, by hour and then by hash: the order of the
 * log, or a moment finer than the hour, would lead to the payment on the chain. What the tree holds leaves the lake's
 * short list here, so a turn costs what is new; a lake that was rebuilt looks at all of them once.
 * @param fold what is published, as far as this process has followed it
 */
export async function openCommitments(
  lake: Pick<Statements, "all" | "run">,
  fold: PublishedFold,
  now: Date,
): Promise<CommitmentDraft[]> {
  const rows = await lake.all<Row>(sql("27_commitments"), { before: momentOf(now) });
  const isKnown = ({ sha256 }: Row): boolean => fold.commitments.has(sha256);
  const known = rows.filter(isKnown).map(({ sha256 }) => sha256);
  if (known.length > 0) await lake.run(sql("27_committed"), { known: JSON.stringify(known) });
  return rows
    .filter((row) => !isKnown(row))
    .map(({ cap, sha256, t }) => ({ kind: "commitment", capability_id: cap, moment: momentOf(t), sha256 }));
}
