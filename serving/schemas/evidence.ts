import { z } from "zod";
import { SHA256_HEX, Sha256Hex } from "../../infra/sha256-hex.ts";
import { FetchedUrl } from "./extract.ts";

/** Body of POST /v1/web/evidence. */
export const EvidenceRequest = z.strictObject({
  url: FetchedUrl,
  /** sha256 of an earlier body to compare with. */
  compare_to: z.string({ error: "must be a sha256" }).regex(SHA256_HEX, "must be 64 lower-case hex digits").optional(),
});
export type EvidenceRequest = z.infer<typeof EvidenceRequest>;

const CertificateShown = z.strictObject({
  /** Hash of the certificate's DER bytes. */
  sha256: Sha256Hex,
  subject: z.string(),
  issuer: z.string(),
  valid_from: z.string(),
  valid_to: z.string(),
});

const Hop = z.strictObject({
  url: z.string(),
  status: z.int(),
  /** Target of a redirect, as the answer wrote it. */
  location: z.string().nullable(),
  /** IP address of the server that answered. */
  address: z.string(),
  /** null over http. The chain was verified; it begins with the host's own certificate and ends with the root. */
  tls: z.strictObject({ protocol: z.string(), chain: z.array(CertificateShown) }).nullable(),
});

/** Text in each receipt about the limits of what it proves. */
export const SEEN_FROM =
  "one resolver and one address of this service at this moment; others may be shown something else";

/** A receipt of what an address answered at one moment, signed with the answers key like a check answer. */
export const EvidenceReceipt = z.strictObject({
  schema: z.literal("svc.evidence.receipt.v2"),
  /** The url of the request. */
  url: z.string(),
  /** Url of the last hop, without its fragment. */
  final_url: z.string(),
  /** Every request that was made, in order. The rest of the receipt is about the answer of the last one. */
  hops: z.array(Hop).min(1),
  status: z.int(),
  /** All headers of the answer but cookies, names in lower case; headers of one name are joined by ", ". */
  headers: z.array(z.strictObject({ name: z.string(), value: z.string() })),
  /** The body after transfer and content codings were removed. */
  body: z.strictObject({ sha256: Sha256Hex, bytes: z.int().min(0) }),
  /** Beginning of the text in the body; null when no text can be extracted, for the reason in `excerpt_missing`. */
  excerpt: z.string().nullable(),
  excerpt_missing: z.string().nullable(),
  compared: z.strictObject({ to: Sha256Hex, result: z.enum(["same", "different"]) }).nullable(),
  seen_from: z.literal(SEEN_FROM),
  /** 32 random bytes, hex, so that nobody can guess a receipt from its hash in the log. */
  salt: Sha256Hex,
  fetched_at: z.string(),
  took_ms: z.int().min(0),
  answered_at: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.literal("RFC8785"),
  signature: z.string(),
});
export type EvidenceReceipt = z.infer<typeof EvidenceReceipt>;

/** Answer of POST /v1/web/evidence. */
export const EvidenceAnswer = z.strictObject({
  schema: z.literal("svc.evidence.v2"),
  receipt: EvidenceReceipt,
  /** SHA-256 of the RFC 8785 bytes of `receipt` with its signature. A leaf (entry) of the service's log contains it. */
  receipt_sha256: Sha256Hex,
  body: z.strictObject({
    /** The body, when it has at most 1 MiB. */
    base64: z.string().nullable(),
    /**
     * Address at which the body can be fetched until `kept_until`, without a credential: anybody who knows the address
     * can fetch it.
     */
    href: z.string().nullable(),
    kept_until: z.string().nullable(),
  }),
  /** Address of the proof that the log holds `receipt_sha256`, and the time by which it exists. */
  proof: z.strictObject({ href: z.string(), by: z.string() }),
});
export type EvidenceAnswer = z.infer<typeof EvidenceAnswer>;

/** Path of GET /v1/web/evidence/receipts/{sha256}. */
export const ReceiptParams = z.strictObject({
  sha256: z.string().regex(SHA256_HEX, "must be 64 lower-case hex digits"),
});

/**
 * Answer of GET /v1/web/evidence/receipts/{sha256}: what proves offline that the log holds a receipt, and since when.
 */
export const ReceiptProof = z.strictObject({
  schema: z.literal("svc.evidence.proof.v1"),
  /** The leaf as it was hashed: RFC 8785 text. */
  leaf: z.string(),
  /** Position of the leaf in the log. */
  index: z.int().min(0),
  /** Size of the tree that the proof is for: that of the checkpoint. */
  tree_size: z.int().min(1),
  /** Hashes from the leaf to the root (RFC 6962 section 2.1.1), hex. */
  path: z.array(Sha256Hex),
  /** Signed note (c2sp.org/signed-note) of the tree's size and root hash, with a witness's cosignature and its time. */
  checkpoint: z.string(),
});
export type ReceiptProof = z.infer<typeof ReceiptProof>;

/** Path of GET /v1/web/evidence/bodies/{id}. */
export const BodyParams = z.strictObject({
  id: z.string().regex(/^\d{8}-[0-9A-HJKMNP-TV-Z]{26}$/, "must be the last part of an answer's body.href"),
});
