import { z } from "zod";
import { BANDS, COMPONENTS, FLAGS, TIERS } from "./vocabulary.ts";

/**
 * One measured component of a grade, such as latency (interface: Component): the estimate, the bounds of its
 * confidence interval, and the effective number of samples. Numbers have at most 6 decimals.
 */
export const Component = z.strictObject({
  point: z.number().nullable(),
  lower: z.number().nullable(),
  upper: z.number().nullable().optional(),
  n_eff: z.number().min(0),
  method: z.string(),
});
export type Component = z.infer<typeof Component>;

export const Components = z.strictObject(
  Object.fromEntries(COMPONENTS.map((name) => [name, Component])) as Record<
    (typeof COMPONENTS)[number],
    typeof Component
  >,
);
export type Components = z.infer<typeof Components>;

/**
 * The members of a scorecard (an endpoint's grade) that are known before it is signed (interface: Scorecard, schema
 * svc.scorecard.v2). `tier`: how deeply the endpoint was verified. `band`: the letter from A to F.
 */
export const UnsignedCard = z.strictObject({
  schema: z.literal("svc.scorecard.v2"),
  capability_id: z.string(),
  tier: z.enum(TIERS),
  band: z.enum([...BANDS, "UNRATED"]),
  composite: z.number(),
  components: Components.nullable(),
  /** Weight of each component in the composite, by name. Components that could not be measured are left out. */
  weights_applied: z.record(z.string(), z.number()),
  weights_version: z.string(),
  sample_count: z.int().min(0),
  window_days: z.int().min(0),
  window_start: z.string(),
  computed_at: z.string(),
  flags: z.array(z.enum(FLAGS)),
  evidence_sample: z.array(z.string()),
  /** Address of the page that describes the method: {@link METHOD_PAGE}. */
  method: z.string(),
  verifier_version: z.string(),
});
export type UnsignedCard = z.infer<typeof UnsignedCard>;

/**
 * A signed card as readers parse it (interface: Scorecard, svc.scorecard.v1 or v2). Optional members may be missing,
 * and flags of other versions are accepted. Parsing fills in no default values, since the signature covers only the
 * members that the card has; code that needs a member decides what its absence means.
 */
export const SignedCard = z.strictObject({
  ...UnsignedCard.partial().shape,
  ...UnsignedCard.pick({ capability_id: true, tier: true, band: true, composite: true, components: true }).shape,
  schema: z.enum(["svc.scorecard.v1", "svc.scorecard.v2"]),
  flags: z.array(z.string()).optional(),
  signing_key_id: z.string().optional(),
  canonicalization: z.literal("RFC8785").optional(),
  signature: z.string(),
});
export type SignedCard = z.infer<typeof SignedCard>;

/** The text that is shown for a member that a card leaves out. */
export const MISSING_MEMBER_TEXT = "not said by this card";

/**
 * The parts of the sentence `why` that a grading run (one computation of the cards that change) computes. The
 * publisher adds the rest, which depends on earlier published letters: whether the hold (the delay before a letter
 * rises) applies (verification-method.md section 8).
 */
export const WhyParts = z.strictObject({
  /**
   * What keeps the raw letter (the letter before the hold) from being better, the strongest cause first, such as "its
   * price moves too much"; empty for an A.
   */
  causes: z.array(z.string()),
  /**
   * For UNRATED, why there is no letter, such as "12 of 30 paid calls so far; unknown, not bad"; null when there is a
   * letter.
   */
  unrated: z.string().nullable(),
  /**
   * Figures in words, such as "at least 92.8 % of its answers are shown to be right (43 paid calls since 17 August
   * 2026, 95 % confidence)".
   */
  figures: z.array(z.string()),
});
export type WhyParts = z.infer<typeof WhyParts>;

/**
 * One card of a grading run, before the hold and before it is signed. `card.band` and `raw_band` both hold the raw
 * letter. `headline`: true for the one of the endpoint's cards that `check` shows.
 */
export const RunCard = z.strictObject({
  card: UnsignedCard,
  raw_band: z.enum([...BANDS, "UNRATED"]),
  headline: z.boolean(),
  why: WhyParts,
  /**
   * The rules that limit the letter, by their names in the published test vectors, with the best letter that each
   * allows (0 for A to 4 for F).
   */
  caps: z.record(z.string(), z.int()),
  /** Number of paid blocks (six hours UTC each) that count towards a letter, at most the number that it needs. */
  progress: z.int(),
});
export type RunCard = z.infer<typeof RunCard>;

/**
 * The cards of one endpoint in a run, one for each tier (depth of verification), the deepest first. Exactly one is
 * the headline. `cap` is the endpoint's capability id.
 */
export const RunLine = z.strictObject({
  cap: z.string(),
  cards: z.array(RunCard).min(1),
  inputs_digest: z.string(),
  /** Time after which the cards change even without new records, RFC 3339, or null. */
  due_at: z.string().nullable(),
});
export type RunLine = z.infer<typeof RunLine>;

/**
 * Endpoints that took money without an answer, with their payee and domain. They are rows of the table of related
 * parties, by which other endpoints of that payee or domain get a flag.
 */
export const NonDeliveringSellers = z
  .array(z.strictObject({ cap: z.string(), pay_to: z.string().nullable(), domain: z.string().nullable() }))
  .readonly();

/**
 * First line of the private object `runs/<20-digit n>`, by which a grading process passes its cards to the publisher.
 * Each further line is a RunLine.
 */
export const RunHeader = z.strictObject({
  v: z.literal([1, 2]),
  n: z.int(),
  /** Id of the event log whose records were graded. */
  log: z.string(),
  /** Time for which the cards were graded, RFC 3339. */
  now: z.string(),
  params_sha256: z.string(),
  /**
   * {topic: {partition: next offset}}: the records that the lake (the database of rows) had loaded when the run was
   * made.
   */
  positions: z.record(z.string(), z.record(z.string(), z.int())),
  /**
   * sha256 of the table of related parties with which the cards were graded. A leaf (an entry of the public Merkle
   * log) names this hash too.
   */
  kin_sha256: z.string(),
  /**
   * Every endpoint of the run's partitions that took money without an answer: their rows in the next table of related
   * parties. A run whose header lacks this member, such as any of version 1, does not change the table.
   */
  thieves: NonDeliveringSellers.optional(),
  /** Number of endpoints with changed cards in this object. */
  changed: z.int(),
});
export type RunHeader = z.infer<typeof RunHeader>;
