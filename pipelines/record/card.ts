import { z } from "zod";
import { BANDS, COMPONENTS, FLAGS, TIERS } from "./vocabulary.ts";

/** One measured part of a grade (interface: Component). Figures have at most 6 decimals. */
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

/** The members of a scorecard that are known before it is signed (interface: Scorecard, schema svc.scorecard.v2). */
export const UnsignedCard = z.strictObject({
  schema: z.literal("svc.scorecard.v2"),
  capability_id: z.string(),
  tier: z.enum(TIERS),
  band: z.enum([...BANDS, "UNRATED"]),
  composite: z.number(),
  components: Components.nullable(),
  /** Weight of each component that has a figure. */
  weights_applied: z.record(z.string(), z.number()),
  weights_version: z.string(),
  sample_count: z.int().min(0),
  window_days: z.int().min(0),
  window_start: z.string(),
  computed_at: z.string(),
  flags: z.array(z.enum(FLAGS)),
  evidence_sample: z.array(z.string()),
  /** The method page under which it was computed: {@link METHOD_PAGE}. */
  method: z.string(),
  verifier_version: z.string(),
});
export type UnsignedCard = z.infer<typeof UnsignedCard>;

/**
 * A signed card as anybody may read it (interface: Scorecard, svc.scorecard.v1 or v2). Optional members may be missing,
 * and flags of other versions are read as they are. The signature is over the card's own bytes, so nothing is filled in
 * here; a reader that needs a member decides what its absence means.
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

/** Shown in place of a member that a card leaves out. */
export const NOT_SAID = "not said by this card";

/** Path and fragment of the method's description, under the service's own address. */
export const METHOD_PAGE = "/docs/verification-method#svc-grade-1";

/** Version of our checks that scored the samples, and of what a card names of them. */
export const VERIFIER_VERSION = "touchstone-verifier-3";

/** The version of a card that names none. */
export const FIRST_VERIFIER_VERSION = "touchstone-verifier-1";

/** Version 1 had an answer in `evidence_sample` as often as it came; from 2 on each is there once. */
export const namesRepeats = (version: string): boolean => version === FIRST_VERIFIER_VERSION;

/** Up to version 2 `why` called an endpoint silent that answered, but without a readable 402: a 404, a page. */
export const callsSilent = (version: string): boolean =>
  version === FIRST_VERIFIER_VERSION || version === "touchstone-verifier-2";

/**
 * The parts of `why` that a run knows. The sentence is made when the card is published, since the hold depends on the
 * raw letters that were published before (verification-method.md section 8).
 */
export const WhyParts = z.strictObject({
  /** What keeps the raw letter from being better, the strongest first: "its price moves too much"; empty for an A. */
  causes: z.array(z.string()),
  /** For UNRATED, why: "12 of 30 paid calls so far; unknown, not bad" or similar; null when there is a letter. */
  unrated: z.string().nullable(),
  /** "at least 92.8 % of its answers are shown to be right (43 paid calls since 17 August 2026, 95 % confidence)". */
  figures: z.array(z.string()),
});
export type WhyParts = z.infer<typeof WhyParts>;

/** One card of a run, before hold and signature. `card.band` and `raw_band` are both the raw letter of this card. */
export const RunCard = z.strictObject({
  card: UnsignedCard,
  raw_band: z.enum([...BANDS, "UNRATED"]),
  headline: z.boolean(),
  why: WhyParts,
  /** Caps that bind, by their names in the vectors, with the band number they cap to (0 A .. 4 F). */
  caps: z.record(z.string(), z.int()),
  progress: z.int(),
});
export type RunCard = z.infer<typeof RunCard>;

/** The cards of one endpoint in a run, the deepest tier first. Exactly one is the headline. */
export const RunLine = z.strictObject({
  cap: z.string(),
  cards: z.array(RunCard).min(1),
  inputs_digest: z.string(),
  /** Moment after which the card changes even without new records, RFC 3339, or null. */
  due_at: z.string().nullable(),
});
export type RunLine = z.infer<typeof RunLine>;

/** Endpoints that took money, and where the money goes: rows of the table of related parties. */
export const Thieves = z
  .array(z.strictObject({ cap: z.string(), pay_to: z.string().nullable(), domain: z.string().nullable() }))
  .readonly();

/** First line of a run object `runs/<20-digit n>`; the lines after it are RunLine. */
export const RunHeader = z.strictObject({
  v: z.literal([1, 2]),
  n: z.int(),
  log: z.string(),
  now: z.string(),
  params_sha256: z.string(),
  /** {topic: {partition: next offset}} that the lake had loaded when the run was made. */
  positions: z.record(z.string(), z.record(z.string(), z.int())),
  /** The table of related parties that the cards were graded with: one that the tree names. */
  kin_sha256: z.string(),
  /** Every endpoint of these partitions that took money: rows of the next table. Form 1 has none and changes no row. */
  thieves: Thieves.optional(),
  changed: z.int(),
});
export type RunHeader = z.infer<typeof RunHeader>;
