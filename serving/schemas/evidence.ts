import { z } from "zod";
import { SHA256_HEX, Sha256Hex } from "../../infra/sha256-hex.ts";
import { FetchedUrl } from "./extract.ts";

/** Body of POST /v1/web/evidence. */
export const EvidenceRequest = z.strictObject({
  url: FetchedUrl,
  /** sha256 of a body that was seen before. */
  compare_to: z.string({ error: "must be a sha256" }).regex(SHA256_HEX, "must be 64 lower-case hex digits").optional(),
});
export type EvidenceRequest = z.infer<typeof EvidenceRequest>;

/** What an address answered at one moment: a receipt, signed as a check answer is. */
export const EvidenceReceipt = z.strictObject({
  schema: z.literal("svc.evidence.v1"),
  /** As asked. */
  url: z.string(),
  /** As it was fetched: without a fragment. */
  final_url: z.string(),
  redirects: z.literal("not followed"),
  /** Where a redirect leads to, absolute where it can be. */
  location: z.string().nullable(),
  status: z.int(),
  /** Those of the answer's headers that say something of the document, values cut at 500 characters. */
  headers: z.record(z.string(), z.string()),
  headers_cut: z.array(z.string()),
  /** Names of the others, at most 100; cookies are never looked at. */
  headers_left_out: z.array(z.string()),
  /** The address that answered, and whether a certificate of its name was verified. */
  peer: z.strictObject({ address: z.string(), tls: z.enum(["verified", "none"]) }),
  /** After any coding of the transfer was undone. */
  body: z.strictObject({ sha256: Sha256Hex, bytes: z.int().min(0) }),
  /** First of its text; null where it has none that can be read, and `excerpt_missing` says why. */
  excerpt: z.string().nullable(),
  excerpt_missing: z.string().nullable(),
  compared: z.strictObject({ to: Sha256Hex, result: z.enum(["same", "different"]) }).nullable(),
  fetched_at: z.string(),
  took_ms: z.int().min(0),
  answered_at: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.literal("RFC8785"),
  signature: z.string(),
});
export type EvidenceReceipt = z.infer<typeof EvidenceReceipt>;
