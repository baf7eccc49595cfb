import type { Folded } from "./fold.ts";
import type { PartName, Sums } from "./sums.ts";

/** A row of `grade_endpoints` (sql/36_endpoints.sql) as JSON, which the engine hands out several times faster than objects. */
export interface EndpointRow {
  /** Number of the endpoint in its chunk. */
  ep: number;
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** A correction withdrew a row of its window. */
  withdrew: boolean;
  pay_to_changed: boolean;
  evidence: string[] | null;
  buyers: { part: PartName; xs: number[] }[] | null;
}

/** All sums of one endpoint: written into the folded ones, since a copy of so many would cost as much as making them. */
export const sumsOfRow = (row: EndpointRow, folded: Folded): Sums =>
  Object.assign(folded, {
    cap: row.cap,
    emptied: folded.seenLast === null && row.withdrew,
    buyers: row.buyers ? Object.fromEntries(row.buyers.map(({ part, xs }) => [part, xs])) : {},
    payToChanged: row.pay_to_changed,
    disputed: row.disputed,
    payTo: row.pay_to,
    domain: row.domain,
    evidence: row.evidence ?? [],
  });
