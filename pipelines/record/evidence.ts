import { z } from "zod";
import { RFC3339 } from "./time.ts";

/**
 * Lines of an evidence file (records.md, Evidence): every sample of a UTC day, and what was learned that day of samples
 * of any day. Each is one RFC 8785 line. Written by 5-archive, read by whoever recomputes a card.
 *
 * `position` is the offset of the newest record of the event log that the line contains, in `topic` of the capability's
 * partition: a card whose leaf says {topic: next} knew the line when `position < next`.
 */
const Time = z.string().regex(RFC3339);
const Bool = z.boolean().nullable();
const Num = z.number().nullable();
const Text = z.string().nullable();

/** What later records may change of a paid row; the same names in `before` and in amendments. */
const Changing = z.looseObject({
  fault: Text,
  live: Bool,
  honest: Bool,
  settled: Bool,
  delivered: Bool,
  refunded: Bool,
  delivery: Num,
  outcome: Num,
  schema_ok: Bool,
  latency_ms: Num,
  response_sha256: Text,
});

export const SampleLine = Changing.extend({
  /** Event id of the handshake, or of the intent of a paid call. */
  obs_id: z.string(),
  capability_id: z.string(),
  topic: z.string(),
  position: z.int().min(0),
  /** Offset of the sample's first record, and how the row read before the one at `position` was in the log: each entry
   * says what differed from the line for cards whose `next` is at or below `upto` and above the entry before it
   * (above `first` for the first one). Ascending. A card with `next` at or below `first` did not know the sample. */
  first: z.int().min(0),
  before: z.array(z.looseObject({ upto: z.int().min(0) })).optional(),
  t: Time,
  kind: z.int(),
  payer: Text,
  w: Num,
  price: Num,
  input: Text,
  pay_to: Text,
  /** Of a handshake: what it met; the newest `asked` or `malformed` one names the endpoint's payTo. */
  state: z.string().optional(),
});
export type SampleLine = z.infer<typeof SampleLine>;

/** A fact that came later: of a sample by its obs_id, or of a capability as a whole. */
export const AmendmentLine = z.looseObject({
  of: z.string(),
  capability_id: z.string(),
  topic: z.string(),
  position: z.int().min(0),
  observed_at: Time,
  field: z.string(),
  value: z.unknown(),
});
export type AmendmentLine = z.infer<typeof AmendmentLine>;

export type EvidenceLine = SampleLine | AmendmentLine;

/** A parsed line of a file of rows; null for one that is neither a sample nor an amendment. */
export function evidenceLineOf(value: unknown): EvidenceLine | null {
  const isSample = typeof value === "object" && value !== null && "obs_id" in value;
  return (isSample ? SampleLine : AmendmentLine).safeParse(value).data ?? null;
}

/** Fields of amendments that speak of the record and change no row: in the order of `corrections`. */
export const CORRECTION_FIELDS = ["correction", "reinstated", "dispute"] as const;

/** One payee and domain table, as what changed since the line before it in the file (the first: since nobody). */
export const KinLine = z.looseObject({
  kin: z.string(),
  add: z.array(z.looseObject({ cap: z.string(), domain: Text, pay_to: Text })),
  remove: z.array(z.string()),
});
export type KinLine = z.infer<typeof KinLine>;
