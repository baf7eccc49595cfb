import { z } from "zod";
import { isRfc3339 } from "./time.ts";

/**
 * Lines of an evidence file (records.md, Evidence): every sample (recorded call) of a UTC day, and the facts that
 * were learned on that day about samples of any day. Each line is RFC 8785 JSON. 5-archive writes the files; anybody
 * can recompute a card (an endpoint's signed grade) from them.
 *
 * `position` is the offset of the newest log record from which the line was made, in `topic` of the capability's
 * partition. A card's leaf (its entry in the public Merkle log) holds the positions {topic: next} up to which the
 * grading run had read the log. The run had read the records of a line if `position < next`.
 */
const Time = z.string().refine(isRfc3339, "not a time");
const NullableBoolean = z.boolean().nullable();
const NullableNumber = z.number().nullable();
const NullableText = z.string().nullable();

/**
 * The members of a sample that later records may change. The entries of `before` and the amendments use these names
 * too.
 */
const ChangeableMembers = z.looseObject({
  fault: NullableText,
  live: NullableBoolean,
  honest: NullableBoolean,
  settled: NullableBoolean,
  delivered: NullableBoolean,
  refunded: NullableBoolean,
  delivery: NullableNumber,
  outcome: NullableNumber,
  schema_ok: NullableBoolean,
  latency_ms: NullableNumber,
  response_sha256: NullableText,
});

export const SampleLine = ChangeableMembers.extend({
  /** Event id of the unpaid request (handshake), or of the intent that was recorded before a paid call. */
  obs_id: z.string(),
  capability_id: z.string(),
  topic: z.string(),
  position: z.int().min(0),
  /**
   * Offset of the sample's first record. A grading run whose `next` is at or below this offset had not read the
   * sample.
   */
  first: z.int().min(0),
  /**
   * Earlier states of the sample, oldest first. Each entry applies to cards whose `next` is at or below the entry's
   * `upto` and above the `upto` of the previous entry (above `first` for the first entry). It holds the members that
   * had another value than in this line.
   */
  before: z.array(z.looseObject({ upto: z.int().min(0) })).optional(),
  t: Time,
  /** 0: an unpaid request; 1: a paid call of ours; 2: a paid call that its buyer published. */
  kind: z.int(),
  payer: NullableText,
  /** Weight of the sample in the grade. */
  w: NullableNumber,
  price: NullableNumber,
  input: NullableText,
  pay_to: NullableText,
  /**
   * State of an unpaid request (HANDSHAKE_STATES in bodies.ts); absent for a paid call. The newest request in state
   * `asked` or `malformed` determines the payee that the endpoint names.
   */
  state: z.string().optional(),
});
export type SampleLine = z.infer<typeof SampleLine>;

/**
 * A fact that was learned later, about a sample (`of` is the sample's obs_id) or about a capability (`of` is its id).
 * `field`: a member of the sample, or `mcp`, `correction`, `reinstated` or `dispute`; `value`: the member's new value,
 * or the body of the record that `field` names.
 */
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

/** Validates a parsed line of an evidence file; null for a line that is neither a sample nor an amendment. */
export function parseEvidenceLine(value: unknown): EvidenceLine | null {
  const isSample = typeof value === "object" && value !== null && "obs_id" in value;
  return (isSample ? SampleLine : AmendmentLine).safeParse(value).data ?? null;
}

/**
 * One version of the table of related parties (endpoints that took money without an answer, with their payees and
 * domains), written as its differences from the version on the previous line. The first line's differences are from
 * an empty table. `kin`: sha256 of the version.
 */
export const RelatedPartiesLine = z.looseObject({
  kin: z.string(),
  add: z.array(z.looseObject({ cap: z.string(), domain: NullableText, pay_to: NullableText })),
  remove: z.array(z.string()),
});
export type RelatedPartiesLine = z.infer<typeof RelatedPartiesLine>;
