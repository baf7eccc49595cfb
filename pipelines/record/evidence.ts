import { z } from "zod";
import { RFC3339 } from "./time.ts";

/**
 * Lines of an evidence file (records.md, Evidence): every sample of a UTC day, and the facts that were learned on that
 * day about samples of any day. Each line is RFC 8785 JSON. 5-archive writes the files; anybody can recompute a card
 * from them.
 *
 * `position` is the offset of the newest log record that the line contains, in `topic` of the capability's partition.
 * The run that computed a card whose leaf has the positions {topic: next} had read the line if `position < next`.
 */
const Time = z.string().regex(RFC3339);
const NullableBoolean = z.boolean().nullable();
const NullableNumber = z.number().nullable();
const NullableText = z.string().nullable();

/**
 * The members of a paid row that later records may change. The entries of `before` and the amendments use these names
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
  /** Event id of the handshake, or of the intent of a paid call. */
  obs_id: z.string(),
  capability_id: z.string(),
  topic: z.string(),
  position: z.int().min(0),
  /** Offset of the sample's first record. A run whose `next` is at or below this offset had not read the sample. */
  first: z.int().min(0),
  /**
   * Earlier states of the row, ascending. Each entry holds the members that differed from this line for cards whose
   * `next` is at or below the entry's `upto`, and above the `upto` of the entry before it (above `first` for the first
   * entry).
   */
  before: z.array(z.looseObject({ upto: z.int().min(0) })).optional(),
  t: Time,
  kind: z.int(),
  payer: NullableText,
  w: NullableNumber,
  price: NullableNumber,
  input: NullableText,
  pay_to: NullableText,
  /**
   * Only for a handshake: its state. The newest handshake whose state is `asked` or `malformed` determines the
   * endpoint's payTo.
   */
  state: z.string().optional(),
});
export type SampleLine = z.infer<typeof SampleLine>;

/** A fact that was learned later, about a sample (`of` is its obs_id) or about a capability. */
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

/** Validates a parsed line of a file of rows; null for one that is neither a sample nor an amendment. */
export function parseEvidenceLine(value: unknown): EvidenceLine | null {
  const isSample = typeof value === "object" && value !== null && "obs_id" in value;
  return (isSample ? SampleLine : AmendmentLine).safeParse(value).data ?? null;
}

/**
 * One table of related parties (payees and domains that took money), written as the changes since the table on the line
 * before. The first line changes an empty table.
 */
export const RelatedPartiesLine = z.looseObject({
  kin: z.string(),
  add: z.array(z.looseObject({ cap: z.string(), domain: NullableText, pay_to: NullableText })),
  remove: z.array(z.string()),
});
export type RelatedPartiesLine = z.infer<typeof RelatedPartiesLine>;
