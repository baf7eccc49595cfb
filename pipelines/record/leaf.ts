import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { ArchiveManifest } from "./archive.ts";
import { SignedCard } from "./card.ts";
import { BANDS } from "./vocabulary.ts";

/** Longest leaf of the tree (publication.md), bytes. A leaf is the RFC 8785 form of an object, without a newline. */
export const MAX_LEAF_BYTES = 65_535;

const base = { index: z.int().min(0), seq: z.int().min(0), at: z.string() };
const band = z.enum([...BANDS, "UNRATED"]);
const DefectLine = z.looseObject({ defect: z.string(), says: z.string(), seenAt: z.string().nullable().optional() });

/** A published card. `card.band` is the letter after the hold; `raw_band` is the raw letter of this card. */
export const GradeLeaf = z.looseObject({
  kind: z.literal("grade"),
  ...base,
  day: z.string(),
  raw_band: band,
  headline: z.boolean(),
  /**
   * The sentence that explains the card (section 8). A check answers with it, so it is signed by the tree beside the
   * card.
   */
  why: z.string(),
  inputs: z.looseObject({
    positions: z.record(z.string(), z.int()),
    digest: z.string(),
    kin: z.string(),
  }),
  card: SignedCard,
});
export type GradeLeaf = z.infer<typeof GradeLeaf>;

/** When the card of a leaf was computed; where the card does not tell, when it was published. */
export const cardMoment = ({ card, at }: Pick<GradeLeaf, "card" | "at">): string => card.computed_at ?? at;

/** Most offers that a listing leaf holds, in the order of the 402 that named them. */
export const MAX_LISTED_OFFERS = 16;

/**
 * One way to pay that an endpoint's newest 402 names. A member is null where the 402 does not name it, and where it changes
 * from call to call: the check names the newest one.
 */
const ListedOffer = z.looseObject({
  /** CAIP-2 id, or the name that the 402 has for the network. */
  network: z.string().nullable(),
  /** Contract, mint or currency code. */
  asset: z.string().nullable(),
  /** Whole units of the asset, six decimals. */
  price: z.string().nullable(),
  pay_to: z.string().nullable(),
});
export type ListedOffer = z.infer<typeof ListedOffer>;

/** An endpoint enters the market index, or its listing changed. */
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
  /** Empty before the first 402; absent in leaves of older logs. */
  offers: z.array(ListedOffer).max(MAX_LISTED_OFFERS).optional(),
});
export type ListingLeaf = z.infer<typeof ListingLeaf>;

const DelistingLeaf = z.looseObject({ kind: z.literal("delisting"), ...base, capability_id: z.string() });

export const CorrectionLeaf = z.looseObject({
  kind: z.enum(["correction", "dispute", "reinstated"]),
  ...base,
  capability_id: z.string(),
  /**
   * Offset of its record in the topic `corrections` of the capability's partition. Cards that had read less ignore it.
   */
  position: z.int().min(0).optional(),
  body: z.looseObject({}),
});
export type CorrectionLeaf = z.infer<typeof CorrectionLeaf>;

/** Commits to a day's plan before the day. The first leaf after the day opens the salt. */
const ScheduleLeaf = z.looseObject({
  kind: z.literal("schedule"),
  ...base,
  day: z.string(),
  /** sha256 of the salt's 32 bytes. */
  salt_hash: z.string(),
  /** Merkle root (RFC 6962) over the sorted covered cap ids. */
  covered_root: z.string(),
  covered: z.int(),
  /** The salt of the day before. Absent in the very first one. */
  opens: z.looseObject({ day: z.string(), salt: z.string() }).optional(),
});

/**
 * A salted commitment to bytes of a bought call that its buyer did not publish (commitment.ts). The object is strict,
 * since a further member could tell who bought.
 */
export const CommitmentLeaf = z.strictObject({
  kind: z.literal("commitment"),
  ...base,
  capability_id: z.string().regex(/^cap_[0-9A-HJKMNP-TV-Z]{26}$/),
  /** UTC hour in which the call ended. A finer time would identify the payment on the chain, and so the buyer. */
  moment: z.string().regex(/^\d{4}-\d{2}-\d{2}T\d{2}:00:00\.000Z$/),
  /** sha256 over 32 bytes of salt and then the bytes. */
  sha256: Sha256Hex,
});
export type CommitmentLeaf = z.infer<typeof CommitmentLeaf>;

/**
 * The hash of a receipt of POST /v1/web/evidence (docs/paid-operations.md). A receipt has a salt, so the leaf tells nothing of
 * what was fetched to anyone who does not hold the receipt.
 */
export const ReceiptLeaf = z.strictObject({
  kind: z.literal("receipt"),
  ...base,
  /** sha256 of the RFC 8785 bytes of the signed receipt. */
  sha256: Sha256Hex,
});
export type ReceiptLeaf = z.infer<typeof ReceiptLeaf>;

/**
 * What a run changes of the table of related parties (payees and domains that took money). The table is a fold of these leaves;
 * cards name the one that they were graded with by its hash (`inputs.kin`).
 */
export const RelatedPartiesLeaf = z.looseObject({
  kind: z.literal("kin"),
  ...base,
  /** Moment of the run. */
  computed_at: z.string(),
  /** Hash of the table after this leaf (docs/evidence.md); null where the next leaf goes on with the same change. */
  kin: Sha256Hex.nullable(),
  add: z.array(z.looseObject({ cap: z.string(), domain: z.string().nullable(), pay_to: z.string().nullable() })),
  remove: z.array(z.string()),
});
export type RelatedPartiesLeaf = z.infer<typeof RelatedPartiesLeaf>;

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
  /** Its lines as one Parquet file; absent in leaves of older logs. */
  table: z.looseObject({ key: z.string(), sha256: Sha256Hex, bytes: z.int().min(0) }).optional(),
});
export type IndexLeaf = z.infer<typeof IndexLeaf>;

/**
 * One file of the evidence (records.md, Evidence), or the statement that a day has none. The leaves of one closing of a
 * day follow each other and are numbered, so that a missing one is noticed.
 */
export const EvidenceLeaf = z.looseObject({
  kind: z.literal("evidence"),
  ...base,
  /** Closed UTC day. */
  day: z.string(),
  /**
   * Number of the closing, from 0. Records that arrive after a closing are published by a further one of the same day.
   */
  freeze: z.int().min(0),
  part: z.int().min(1),
  parts: z.int().min(1),
  /** `rows`: one bucket's samples and amendments. `kin`: payee and domain tables. `nothing`: the day has no row. */
  holds: z.enum(["rows", "kin", "nothing"]),
  bucket: z.int().min(0).max(63).nullable(),
  /** Number of the file's lines. */
  rows: z.int().min(0),
  /** {topic: next offset} of the bucket's partition, up to which the closing had read. */
  positions: z.record(z.string(), z.int()),
  /** For `kin`: the file has the tables that this day's cards name in leaves below this position. */
  below: z.int().min(0).nullable(),
  key: z.string().nullable(),
  /**
   * sha256 and length of the packed file, then of the unpacked file. The key has the first 16 digits of the latter
   * hash.
   */
  sha256: z.string().nullable(),
  bytes: z.int().min(0),
  unpacked_sha256: z.string().nullable(),
  unpacked_bytes: z.int().min(0),
});
export type EvidenceLeaf = z.infer<typeof EvidenceLeaf>;

/** One file of the archive (publication.md), with its whole signed manifest, which allows no further members. */
export const ArchiveLeaf = z.looseObject({
  kind: z.literal("archive"),
  ...base,
  manifest: ArchiveManifest,
  /** sha256 of the packed file. */
  sha256: z.string(),
  unpacked_bytes: z.int().min(0),
  /** Manifest id of the wrong file of this subject and day that this one replaces, and why; null for a further file. */
  supersedes: z.string().nullable(),
  reason: z.string().nullable(),
  /** The file's records lie below these: {topic: {partition: next offset}}; for grades {tree: {"0": leaves}}. */
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
  ReceiptLeaf,
  RelatedPartiesLeaf,
]);
export type Leaf = z.infer<typeof Leaf>;
export type LeafKind = Leaf["kind"];

/** One line of the market index: a capability with the card that a check shows. */
export const IndexLine = z.looseObject({
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable().optional(),
  capability_id: z.string(),
  band,
  tier: z.string().nullable(),
  /** null: the card does not tell. 0 where there is no card. */
  sample_count: z.int().nullable(),
  defects: z.array(DefectLine),
  why: z.string(),
  class: z.string(),
  description: z.string().nullable(),
  offers: z.array(ListedOffer).optional(),
  /** Position of the card's leaf in the tree, null before the first card. */
  leaf: z.int().nullable(),
  card: SignedCard.nullable(),
});
export type IndexLine = z.infer<typeof IndexLine>;
