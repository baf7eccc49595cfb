import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { rfc3339 } from "../record/time.ts";

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

/** The 16 fields of a row that a letter's inputs are known by; its time is `YYYY-MM-DDTHH:MM:SS.mmmZ`. */
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
