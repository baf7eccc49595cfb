import { BLOCK_MS } from "./params.ts";
import type { Sample } from "./sample.ts";

/** A wall: a bot check, a 403 or a 429 instead of an answer. */
const blocked = (row: Sample): boolean => row.fault === "blocked";

/**
 * Whether a row is a sample (method, section 1): out are our own fault, a synthetic input that moved no money, and a
 * published call that none of ours reproduced.
 */
export const counts = (row: Sample): boolean =>
  row.fault === null || (row.kind < 2 && (blocked(row) || (row.fault === "bad_input" && row.settled === true)));

export const blockNumber = (row: Sample): number => Math.floor(row.t.getTime() / BLOCK_MS);

/** What one counted row says of each part; null where it says nothing. */
export interface Said {
  row: Sample;
  block: number;
  paid: boolean;
  wall: boolean;
  answered: boolean;
  honest: boolean | null;
  delivered: boolean;
  /** 0 where a payment brought no bytes, whatever the reason. */
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  /** Silence has no latency: it is counted in liveness. */
  ms: number | null;
  price: number | null;
}

/** @param pays whether a payment of this row counts for correctness: ours always, a buyer's when it settled */
export function said(row: Sample, pays: boolean): Said {
  const live = row.live === true;
  const delivered = row.delivered === true;
  const answered = live && !blocked(row);
  return {
    row,
    block: blockNumber(row),
    paid: row.kind === 1,
    wall: blocked(row) && row.kind === 0,
    answered,
    honest: answered ? row.honest : null,
    delivered,
    delivery: pays ? (delivered ? (row.delivery ?? 0) : 0) : null,
    outcome: pays && row.outcome !== null ? (delivered ? row.outcome : 0) : null,
    schema_ok: pays && delivered ? row.schema_ok : null,
    ms: !blocked(row) && (row.kind === 0 ? live : delivered) ? row.latency_ms : null,
    price: row.price !== null && row.price > 0 ? row.price : null,
  };
}
