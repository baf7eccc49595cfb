import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { ArchiveManifest } from "./archive.ts";
import { SignedCard } from "./card.ts";
import { isDay, isRfc3339 } from "./time.ts";
import { BANDS } from "./vocabulary.ts";

/**
 * Longest leaf in bytes. A leaf is one entry of the tree, the public Merkle log of everything that is published
 * (publication.md): the RFC 8785 form of an object, without a newline.
 */
export const MAX_LEAF_BYTES = 65_535;

/** Readers compute with these days and times, so a text that is none is refused. */
const Day = z.string().refine(isDay, "not a day");
const Time = z.string().refine(isRfc3339, "not a time");
/**
 * Members of every leaf. `index`: its position in the tree. `seq`: its number among the leaves of its kind, from 0
 * without gaps. `at`: when it was published.
 */
const LEAF_MEMBERS = { index: z.int().min(0), seq: z.int().min(0), at: Time };
const band = z.enum([...BANDS, "UNRATED"]);
const DefectLine = z.looseObject({ defect: z.string(), says: z.string(), seenAt: z.string().nullable().optional() });

/**
 * A published card (an endpoint's signed grade). `raw_band`: the letter that the samples (recorded calls) give.
 * `card.band`: the letter after the hold, which delays a rise. `headline`: true for the one of the endpoint's cards
 * that `check` shows. `inputs`: what the grading run had read: log positions, a digest of the samples, and the hash of
 * the table of related parties (`kin`).
 */
export const GradeLeaf = z.looseObject({
  kind: z.literal("grade"),
  ...LEAF_MEMBERS,
  day: Day,
  raw_band: band,
  headline: z.boolean(),
  /**
   * The sentence that explains the card (verification-method.md section 8). It is in the leaf so that the tree's
   * signature covers it, since `check` answers with it.
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

/** Returns when the card of a leaf was computed; if the card does not state that, when it was published. */
export const cardTime = ({ card, at }: Pick<GradeLeaf, "card" | "at">): string => card.computed_at ?? at;

/** Largest number of offers that a listing leaf holds, in the order of the 402 that named them. */
export const MAX_LISTED_OFFERS = 16;

/**
 * One way to pay that an endpoint's newest 402 offers. A member is null if the 402 does not name it. `price` and
 * `pay_to` are null too if they change from call to call, which would change the leaf; `check` answers with their
 * newest values.
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

/**
 * What the public index of endpoints states about an endpoint: published when the endpoint enters the index or one of
 * these members changes.
 */
export const ListingLeaf = z.looseObject({
  kind: z.literal("listing"),
  ...LEAF_MEMBERS,
  capability_id: z.string(),
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable(),
  class: z.string(),
  description: z.string().nullable(),
  seller_controlled: z.boolean(),
  defects: z.array(DefectLine),
  /** Empty before the endpoint's first 402; absent in older leaves. */
  offers: z.array(ListedOffer).max(MAX_LISTED_OFFERS).optional(),
});
export type ListingLeaf = z.infer<typeof ListingLeaf>;

/** The endpoint leaves the public index, for example because no source lists it any more. */
const DelistingLeaf = z.looseObject({ kind: z.literal("delisting"), ...LEAF_MEMBERS, capability_id: z.string() });

/** A correction, a dispute, or the revocation of a correction (`reinstated`). `body`: the body of its record. */
export const CorrectionLeaf = z.looseObject({
  kind: z.enum(["correction", "dispute", "reinstated"]),
  ...LEAF_MEMBERS,
  capability_id: z.string(),
  /**
   * Offset of the correction's record in the topic `corrections` of the capability's partition. A card does not take
   * the correction into account if the positions in its leaf are at or below this offset.
   */
  position: z.int().min(0).optional(),
  body: z.looseObject({}),
});
export type CorrectionLeaf = z.infer<typeof CorrectionLeaf>;

/**
 * A commitment to a day's plan of calls, published before the day's first call. The first such leaf after the day
 * discloses the salt, by which anybody can check the plan.
 */
const ScheduleLeaf = z.looseObject({
  kind: z.literal("schedule"),
  ...LEAF_MEMBERS,
  day: Day,
  /** sha256 of the salt's 32 bytes. */
  salt_hash: z.string(),
  /**
   * Merkle root (RFC 6962) over the sorted capability ids of the endpoints that may be paid on the day; `covered` is
   * their number.
   */
  covered_root: z.string(),
  covered: z.int(),
  /** The salt of an earlier day, now disclosed. Absent in the first leaf of this kind. */
  opens: z.looseObject({ day: Day, salt: z.string() }).optional(),
});

/**
 * A salted commitment to the bytes of a bought call that its buyer did not publish (commitment.ts). No further
 * members are accepted, since they could help to identify the buyer.
 */
export const CommitmentLeaf = z.strictObject({
  kind: z.literal("commitment"),
  ...LEAF_MEMBERS,
  capability_id: z.string().regex(/^cap_[0-9A-HJKMNP-TV-Z]{26}$/),
  /**
   * UTC hour in which the call ended. A more exact time would lead to the payment on the chain, and so to the buyer.
   */
  moment: z.string().regex(/^\d{4}-\d{2}-\d{2}T\d{2}:00:00\.000Z$/),
  /** sha256 over 32 bytes of salt and then the bytes. */
  sha256: Sha256Hex,
});
export type CommitmentLeaf = z.infer<typeof CommitmentLeaf>;

/**
 * The hash of a receipt from POST /v1/web/evidence (docs/paid-operations.md). A receipt contains a salt, so nobody can
 * learn from the leaf alone what was fetched.
 */
export const ReceiptLeaf = z.strictObject({
  kind: z.literal("receipt"),
  ...LEAF_MEMBERS,
  /** sha256 of the RFC 8785 bytes of the signed receipt. */
  sha256: Sha256Hex,
});
export type ReceiptLeaf = z.infer<typeof ReceiptLeaf>;

/**
 * The changes that a grading run makes to the table of related parties (endpoints that took money without an answer,
 * with their payees and domains). The table follows from applying these leaves in order. Each card's leaf names, by
 * its hash (`inputs.kin`), the table with which the card was graded.
 */
export const RelatedPartiesLeaf = z.looseObject({
  kind: z.literal("kin"),
  ...LEAF_MEMBERS,
  /** When the grading run was made. */
  computed_at: z.string(),
  /** Hash of the table after this leaf (docs/evidence.md); null if the next leaf continues the change. */
  kin: Sha256Hex.nullable(),
  add: z.array(z.looseObject({ cap: z.string(), domain: z.string().nullable(), pay_to: z.string().nullable() })),
  remove: z.array(z.string()),
});
export type RelatedPartiesLeaf = z.infer<typeof RelatedPartiesLeaf>;

/**
 * Version `n` of the document of the service's keys, which is stored under `key`. `sha256`, `bytes`: hash and length of
 * the document.
 */
export const KeysLeaf = z.looseObject({
  kind: z.literal("keys"),
  ...LEAF_MEMBERS,
  n: z.int(),
  key: z.string(),
  sha256: z.string(),
  bytes: z.int(),
});
export type KeysLeaf = z.infer<typeof KeysLeaf>;
/**
 * A market index, made from the first `tree_size` leaves. `key`: where the signed list of its files is stored.
 * `sha256`, `bytes`: hash and length of that list.
 */
export const IndexLeaf = z.looseObject({
  kind: z.literal("index"),
  ...LEAF_MEMBERS,
  key: z.string(),
  sha256: z.string(),
  bytes: z.int(),
  tree_size: z.int(),
  /** The index's lines as one Parquet file; absent in older leaves. */
  table: z.looseObject({ key: z.string(), sha256: Sha256Hex, bytes: z.int().min(0) }).optional(),
});
export type IndexLeaf = z.infer<typeof IndexLeaf>;

/**
 * One evidence file (records.md, Evidence), or the statement that a day has none. The evidence of a UTC day is
 * published at once when the day is closed: the leaves of one closing are neighbours and are numbered by `part` of
 * `parts`, so that a reader notices a missing leaf.
 */
export const EvidenceLeaf = z.looseObject({
  kind: z.literal("evidence"),
  ...LEAF_MEMBERS,
  /** Closed UTC day. */
  day: Day,
  /**
   * Number of the day's closing, from 0. Records that arrive after a closing are published by a further closing of that
   * day.
   */
  freeze: z.int().min(0),
  part: z.int().min(1),
  parts: z.int().min(1),
  /**
   * `rows`: samples and amendments of one bucket (of 64, by capability id). `kin`: tables of related parties.
   * `nothing`: there is no file, since the day has no row.
   */
  holds: z.enum(["rows", "kin", "nothing"]),
  bucket: z.int().min(0).max(63).nullable(),
  /** Number of the file's lines. */
  rows: z.int().min(0),
  /** {topic: next offset} in the bucket's partition: all records below these offsets were read for the file. */
  positions: z.record(z.string(), z.int()),
  /**
   * For `kin`: the file has the tables that are named by those of the day's cards whose leaves are below this position
   * of the tree. null for the other files.
   */
  below: z.int().min(0).nullable(),
  key: z.string().nullable(),
  /**
   * sha256 and length of the compressed file, then of the unpacked file. The key contains the first 16 digits of the
   * unpacked file's hash.
   */
  sha256: z.string().nullable(),
  bytes: z.int().min(0),
  unpacked_sha256: z.string().nullable(),
  unpacked_bytes: z.int().min(0),
});
export type EvidenceLeaf = z.infer<typeof EvidenceLeaf>;

/** One file of the archive of old rows (publication.md), with its whole signed manifest. */
export const ArchiveLeaf = z.looseObject({
  kind: z.literal("archive"),
  ...LEAF_MEMBERS,
  manifest: ArchiveManifest.refine(({ from, to }) => isRfc3339(from) && isRfc3339(to), "not from a time to a time"),
  /** sha256 of the compressed file. */
  sha256: z.string(),
  unpacked_bytes: z.int().min(0),
  /**
   * Manifest id of a wrong file of the same subject and day that this file replaces, and the reason; both null if it
   * replaces none.
   */
  supersedes: z.string().nullable(),
  reason: z.string().nullable(),
  /**
   * All records of the file lie below these offsets: {topic: {partition: next offset}}; for grades {tree: {"0": number
   * of leaves}}.
   */
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

/** One line of the market index: a capability (priced endpoint) with the card that `check` shows. */
export const IndexLine = z.looseObject({
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable().optional(),
  capability_id: z.string(),
  band,
  /** How deeply the endpoint was verified (TIERS in vocabulary.ts); null if nothing was measured yet. */
  tier: z.string().nullable(),
  /** Number of samples; null if the card has no such figure; 0 if there is no card. */
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
