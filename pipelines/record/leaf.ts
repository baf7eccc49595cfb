import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { ArchiveManifest } from "./archive.ts";
import { SignedCard } from "./card.ts";
import { BANDS } from "./vocabulary.ts";

/** Leaves of the tree (publication.md): the RFC 8785 bytes of an envelope, at most 65,535 bytes, no newline. */
export const MAX_LEAF_BYTES = 65_535;

const base = { index: z.int().min(0), seq: z.int().min(0), at: z.string() };
const band = z.enum([...BANDS, "UNRATED"]);
const DefectLine = z.looseObject({ defect: z.string(), says: z.string(), seenAt: z.string().nullable().optional() });

/** One card as published. `card.band` is after the hold; `raw_band` is this card's own raw letter. */
export const GradeLeaf = z.looseObject({
  kind: z.literal("grade"),
  ...base,
  day: z.string(),
  raw_band: band,
  headline: z.boolean(),
  /** The sentence of section 8: a check answers with it, so it stands under the root beside its card. */
  why: z.string(),
  inputs: z.looseObject({
    positions: z.record(z.string(), z.int()),
    digest: z.string(),
    kin: z.string(),
  }),
  card: SignedCard,
});
export type GradeLeaf = z.infer<typeof GradeLeaf>;

/** When the card of a leaf was computed, as far as the log tells: one that does not say it, when it was published. */
export const cardMoment = ({ card, at }: Pick<GradeLeaf, "card" | "at">): string => card.computed_at ?? at;

/** An endpoint enters the market index, or what is known of it changed. */
export const ListingLeaf = z.looseObject({
  kind: z.literal("listing"),
  ...base,
  capability_id: z.string(),
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable(),
  class: z.string(),
  description: z.string().nullable(),
  seller_controlled: z.boolean(),
  defects: z.array(DefectLine),
});
export type ListingLeaf = z.infer<typeof ListingLeaf>;

const DelistingLeaf = z.looseObject({ kind: z.literal("delisting"), ...base, capability_id: z.string() });

export const CorrectionLeaf = z.looseObject({
  kind: z.enum(["correction", "dispute", "reinstated"]),
  ...base,
  capability_id: z.string(),
  /** Offset of its record in the topic `corrections` of the capability's partition: a card that read less ignores it. */
  position: z.int().min(0).optional(),
  body: z.looseObject({}),
});
export type CorrectionLeaf = z.infer<typeof CorrectionLeaf>;

/** Commitment to a day's plan, before it; the salt comes in the first leaf after the day. */
const ScheduleLeaf = z.looseObject({
  kind: z.literal("schedule"),
  ...base,
  day: z.string(),
  /** sha256 of the salt's 32 bytes. */
  salt_hash: z.string(),
  /** Merkle root (RFC 6962) over the sorted covered cap ids. */
  covered_root: z.string(),
  covered: z.int(),
  /** The salt of the day before, opened. Absent on the very first one. */
  opens: z.looseObject({ day: z.string(), salt: z.string() }).optional(),
});

/**
 * Salted commitment to bytes of a bought call that its buyer did not publish (commitment.ts). Strict: a member more could
 * tell the buyer.
 */
export const CommitmentLeaf = z.strictObject({
  kind: z.literal("commitment"),
  ...base,
  capability_id: z.string().regex(/^cap_[0-9A-HJKMNP-TV-Z]{26}$/),
  /** UTC hour in which the call ended. Finer, it would name the payment on the chain, and with it the buyer. */
  moment: z.string().regex(/^\d{4}-\d{2}-\d{2}T\d{2}:00:00\.000Z$/),
  /** sha256 over 32 bytes of salt and then the bytes. */
  sha256: Sha256Hex,
});
export type CommitmentLeaf = z.infer<typeof CommitmentLeaf>;

export const KeysLeaf = z.looseObject({
  kind: z.literal("keys"),
  ...base,
  n: z.int(),
  key: z.string(),
  sha256: z.string(),
  bytes: z.int(),
});
export type KeysLeaf = z.infer<typeof KeysLeaf>;
export const IndexLeaf = z.looseObject({
  kind: z.literal("index"),
  ...base,
  key: z.string(),
  sha256: z.string(),
  bytes: z.int(),
  tree_size: z.int(),
});
export type IndexLeaf = z.infer<typeof IndexLeaf>;

/**
 * One file of the evidence (records.md, Evidence), or the word that a day has none. The leaves of one close of a day are
 * neighbours and count themselves, so that none can be left out unseen.
 */
export const EvidenceLeaf = z.looseObject({
  kind: z.literal("evidence"),
  ...base,
  /** Closed UTC day. */
  day: z.string(),
  /** 0 the first time; what arrived after a close makes a further one of the same day. */
  freeze: z.int().min(0),
  part: z.int().min(1),
  parts: z.int().min(1),
  /** `rows`: one bucket's samples and amendments. `kin`: payee and domain tables. `nothing`: the day has no row. */
  holds: z.enum(["rows", "kin", "nothing"]),
  bucket: z.int().min(0).max(63).nullable(),
  /** Lines of the file. */
  rows: z.int().min(0),
  /** {topic: next offset} of the bucket's partition: what the close had read. */
  positions: z.record(z.string(), z.int()),
  /** Of `kin`: tables that cards of this day in leaves below this position name. */
  below: z.int().min(0).nullable(),
  key: z.string().nullable(),
  /** Of the packed bytes, and of what they unpack to; the key carries the first 16 of the latter. */
  sha256: z.string().nullable(),
  bytes: z.int().min(0),
  unpacked_sha256: z.string().nullable(),
  unpacked_bytes: z.int().min(0),
});
export type EvidenceLeaf = z.infer<typeof EvidenceLeaf>;

/** One file of the archive (publication.md): the whole signed manifest, since a manifest allows no further member. */
export const ArchiveLeaf = z.looseObject({
  kind: z.literal("archive"),
  ...base,
  manifest: ArchiveManifest,
  /** Of the packed bytes. */
  sha256: z.string(),
  unpacked_bytes: z.int().min(0),
  /** Manifest id of the wrong file of the same subject and day that this one replaces, and why; null for a further file. */
  supersedes: z.string().nullable(),
  reason: z.string().nullable(),
  /** Members lie below it: {topic: {partition: next offset}}; of grades {tree: {"0": leaves}}. */
  positions: z.record(z.string(), z.record(z.string(), z.int())),
});
export type ArchiveLeaf = z.infer<typeof ArchiveLeaf>;

export const Leaf = z.discriminatedUnion("kind", [
  GradeLeaf,
  ListingLeaf,
  DelistingLeaf,
  CorrectionLeaf,
  ScheduleLeaf,
  KeysLeaf,
  IndexLeaf,
  EvidenceLeaf,
  ArchiveLeaf,
  CommitmentLeaf,
]);
export type Leaf = z.infer<typeof Leaf>;
export type LeafKind = Leaf["kind"];

/** One line of the market index: one a capability, its card the one that a check shows. */
export const IndexLine = z.looseObject({
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable().optional(),
  capability_id: z.string(),
  band,
  tier: z.string().nullable(),
  /** null: not said by its card. 0 without a card. */
  sample_count: z.int().nullable(),
  defects: z.array(DefectLine),
  why: z.string(),
  class: z.string(),
  description: z.string().nullable(),
  /** Log position of the card's leaf, null before the first card. */
  leaf: z.int().nullable(),
  card: SignedCard.nullable(),
});
export type IndexLine = z.infer<typeof IndexLine>;
