import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { rfc3339 } from "../record/time.ts";
import { BLOCK_MS } from "./params.ts";

/** One observation of an endpoint: a row of `samples` in the lake, or a line of an evidence file. */
export interface Sample {
  obs_id: string;
  t: Date;
  /** 0: an exchange without payment; 1: our signed payment was sent; 2: a call that a buyer published. */
  kind: number;
  /** Address of the buyer who published the call (kind 2); else null. */
  payer: string | null;
  /** Weight of the call in its block, fixed before the call; null counts as 1. */
  w: number | null;
  /** Why the row may not count: one of FAULTS (record/vocabulary.ts); null if nothing speaks against it. */
  fault: string | null;
  live: boolean | null;
  /**
   * Did the terms of the 402 agree with the seller's own listing, and the settlement with those terms? null if neither
   * could be compared.
   */
  honest: boolean | null;
  settled: boolean | null;
  delivered: boolean | null;
  refunded: boolean | null;
  /** Results of the delivery check and of the outcome check, from 0 to 1; null without a check. */
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  latency_ms: number | null;
  /** In dollars. */
  price: number | null;
  /** Kind of input of our paid call, such as `example`, `synthetic` or `known_answer`; null for rows of other kinds. */
  input: string | null;
  response_sha256: string | null;
  pay_to: string | null;
}

/** Orders samples by record id, ascending. Ids are ASCII, so their characters and their bytes have one order. */
export const compareIds = (a: Pick<Sample, "obs_id">, b: Pick<Sample, "obs_id">): number =>
  a.obs_id < b.obs_id ? -1 : a.obs_id > b.obs_id ? 1 : 0;

/**
 * A row's line for the digest of a letter's inputs: 16 fields in RFC 8785 form and a newline. The time is
 * `YYYY-MM-DDTHH:MM:SS.mmmZ`.
 */
export function inputLine(row: Sample): string {
  const { obs_id, kind, payer, w, fault, live, honest, settled, delivered, refunded } = row;
  const { delivery, outcome, schema_ok, latency_ms, price } = row;
  const flags = { live, honest, settled, delivered, refunded, schema_ok };
  const numbers = { kind, w, delivery, outcome, latency_ms, price };
  return `${canonicalText({ obs_id, t: rfc3339(row.t), payer, fault, ...flags, ...numbers })}\n`;
}

/**
 * `inputs.digest` of a leaf: sha256 over the lines of the window's rows that no correction withdrew, ascending by id.
 */
export function inputsDigest(rows: readonly Sample[]): string {
  const hash = createHash("sha256");
  for (const row of [...rows].sort(compareIds)) hash.update(inputLine(row));
  return hash.digest("hex");
}

/** Is the row a wall: a bot check, a 403 or a 429 instead of an answer? */
const isBlocked = (row: Sample): boolean => row.fault === "blocked";

/**
 * Does a row count as a sample (verification-method.md section 1)? These do not: rows with a fault of our own, calls of
 * ours whose synthetic input may be at fault and whose payment did not settle, and failures that buyers published and
 * that no call of ours reproduced.
 */
export const isCounted = (row: Sample): boolean =>
  row.fault === null || (row.kind < 2 && (isBlocked(row) || (row.fault === "bad_input" && row.settled === true)));

const blockNumber = (row: Sample): number => Math.floor(row.t.getTime() / BLOCK_MS);

/** The values of one counted row for each part of the grade; null where the row is no sample of a part. */
export interface SampleReading {
  row: Sample;
  /** Number of the row's block (six hours UTC since 1970). */
  block: number;
  /** Is it a paid call of ours? */
  paid: boolean;
  /** Did a probe of ours get a bot check, a 403 or a 429? */
  wall: boolean;
  /** Was there a good answer in time, that is a readable 402 or a 2xx? */
  answered: boolean;
  honest: boolean | null;
  delivered: boolean;
  /** 0 where a payment got no answer, for whatever reason. */
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  /** Latency, ms; null if there was no answer, since liveness already counts that. */
  ms: number | null;
  price: number | null;
}

/**
 * Computes the values of a row for each part of the grade.
 * @param paymentCounts does this row's payment count for correctness? Our own always does, a buyer's only if it settled
 */
export function readSample(row: Sample, paymentCounts: boolean): SampleReading {
  const live = row.live === true;
  const delivered = row.delivered === true;
  const answered = live && !isBlocked(row);
  return {
    row,
    block: blockNumber(row),
    paid: row.kind === 1,
    wall: isBlocked(row) && row.kind === 0,
    answered,
    honest: answered ? row.honest : null,
    delivered,
    delivery: paymentCounts ? (delivered ? (row.delivery ?? 0) : 0) : null,
    outcome: paymentCounts && row.outcome !== null ? (delivered ? row.outcome : 0) : null,
    schema_ok: paymentCounts && delivered ? row.schema_ok : null,
    ms: !isBlocked(row) && (row.kind === 0 ? live : delivered) ? row.latency_ms : null,
    price: row.price !== null && row.price > 0 ? row.price : null,
  };
}
