import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { rfc3339 } from "../record/time.ts";
import { BLOCK_MS } from "./params.ts";

/** One observation of an endpoint: a row of `samples` in the lake, a line of an evidence file. */
export interface Sample {
  obs_id: string;
  t: Date;
  /** 0 an exchange without payment, 1 our signed payment was sent, 2 a published call of a buyer. */
  kind: number;
  payer: string | null;
  w: number | null;
  fault: string | null;
  live: boolean | null;
  honest: boolean | null;
  settled: boolean | null;
  delivered: boolean | null;
  refunded: boolean | null;
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  latency_ms: number | null;
  price: number | null;
  input: string | null;
  response_sha256: string | null;
  pay_to: string | null;
}

const bytewise = (a: Sample, b: Sample): number => Buffer.compare(Buffer.from(a.obs_id), Buffer.from(b.obs_id));

/** The 16 fields of a row that enter the digest of a letter's inputs; its time is `YYYY-MM-DDTHH:MM:SS.mmmZ`. */
export function inputLine(row: Sample): string {
  const { obs_id, kind, payer, w, fault, live, honest, settled, delivered, refunded } = row;
  const { delivery, outcome, schema_ok, latency_ms, price } = row;
  const flags = { live, honest, settled, delivered, refunded, schema_ok };
  const numbers = { kind, w, delivery, outcome, latency_ms, price };
  return `${canonicalText({ obs_id, t: rfc3339(row.t), payer, fault, ...flags, ...numbers })}\n`;
}

/** `inputs.digest` of a leaf: sha256 over the lines of the window's rows that no correction withdrew, ascending by id. */
export function inputsDigest(rows: readonly Sample[]): string {
  const hash = createHash("sha256");
  for (const row of [...rows].sort(bytewise)) hash.update(inputLine(row));
  return hash.digest("hex");
}

/** A wall: a bot check, a 403 or a 429 instead of an answer. */
const blocked = (row: Sample): boolean => row.fault === "blocked";

/**
 * Whether a row is a sample (method, section 1): out are our own fault, a synthetic input that moved no money, and a
 * published call that none of ours reproduced.
 */
export const counts = (row: Sample): boolean =>
  row.fault === null || (row.kind < 2 && (blocked(row) || (row.fault === "bad_input" && row.settled === true)));

const blockNumber = (row: Sample): number => Math.floor(row.t.getTime() / BLOCK_MS);

/** Sample of one counted row for each part; null where the row is none. */
export interface Reading {
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
export function readingOf(row: Sample, pays: boolean): Reading {
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
