import type { Sample } from "../../../pipelines/3-grade/sample.ts";

/** A sample without its identity. */
export type Row = Omit<Sample, "obs_id" | "t" | "w">;

/** A probe that an honest seller answered. */
export const PROBE: Row = {
  kind: 0,
  payer: null,
  fault: null,
  live: true,
  honest: true,
  settled: false,
  delivered: null,
  refunded: false,
  delivery: null,
  outcome: null,
  schema_ok: null,
  latency_ms: 400,
  price: 0.01,
  input: null,
  response_sha256: null,
  pay_to: "0xaa",
};

/** A paid call that it answered as it should. */
export const PAID: Row = {
  ...PROBE,
  kind: 1,
  settled: true,
  delivered: true,
  delivery: 1,
  outcome: 1,
  schema_ok: true,
  input: "known_answer",
};
