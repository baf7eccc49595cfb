import { z } from "zod";
import { sha256hexAsync } from "../../infra/canonical.ts";
import { SHA256_HEX, Sha256Hex } from "../../infra/sha256-hex.ts";
import { parseUrl } from "../../infra/url.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { signedText } from "../answers/check.ts";
import { Problem } from "../http/problem.ts";
import { FetchedUrl } from "../schemas/extract.ts";
import { textOnly } from "./extract/limits.ts";
import { extractDocument, type FetchedAnswer, fetchAnswer } from "./fetching.ts";
import type { Work, WorkDeps } from "./work.ts";

/** Body of POST /v1/web/evidence. */
const EvidenceRequest = z.strictObject({
  url: FetchedUrl,
  /** sha256 of an earlier body to compare with. */
  compare_to: z.string({ error: "must be a sha256" }).regex(SHA256_HEX, "must be 64 lower-case hex digits").optional(),
});
type EvidenceRequest = z.infer<typeof EvidenceRequest>;

/** A signed receipt of what an address answered at one moment. It is signed like a check answer. */
export const EvidenceReceipt = z.strictObject({
  schema: z.literal("svc.evidence.v1"),
  /** The url of the request. */
  url: z.string(),
  /** The fetched url, without its fragment. */
  final_url: z.string(),
  redirects: z.literal("not followed"),
  /** Target of a redirect, absolute if possible. */
  location: z.string().nullable(),
  status: z.int(),
  /** Headers about the document, its age and its use; values are cut at 500 characters. */
  headers: z.record(z.string(), z.string()),
  /** Names of the headers whose values were cut. */
  headers_cut: z.array(z.string()),
  /** Names of all other headers, at most 100. */
  headers_left_out: z.array(z.string()),
  /** The IP address that answered, and whether its certificate was verified. */
  peer: z.strictObject({ address: z.string(), tls: z.enum(["verified", "none"]) }),
  /** The body after transfer and content codings were removed. */
  body: z.strictObject({ sha256: Sha256Hex, bytes: z.int().min(0) }),
  /** Beginning of the document's text; null when no text can be extracted, and `excerpt_missing` tells why. */
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

const MAX_BODY = 16_384;
const EXCERPT_CHARS = 2_000;
const VALUE_CHARS = 500;
const NAME_CHARS = 64;
const MAX_NAMES = 100;

/** Headers whose values are in the receipt: those about the document, its age, or who may read it. */
const KEPT = [
  "age",
  "cache-control",
  "content-disposition",
  "content-encoding",
  "content-language",
  "content-length",
  "content-location",
  "content-type",
  "date",
  "digest",
  "etag",
  "expires",
  "last-modified",
  "link",
  "location",
  "repr-digest",
  "retry-after",
  "server",
  "vary",
  "www-authenticate",
  "x-robots-tag",
] as const;

type Headers = Pick<EvidenceReceipt, "headers" | "headers_cut" | "headers_left_out">;

function headersOf(answered: Record<string, string>): Headers {
  const headers: Record<string, string> = {};
  const cut: string[] = [];
  for (const name of KEPT) {
    const value = answered[name];
    if (value === undefined) continue;
    headers[name] = value.slice(0, VALUE_CHARS);
    if (value.length > VALUE_CHARS) cut.push(name);
  }
  const others = Object.keys(answered).filter((name) => !Object.hasOwn(headers, name));
  const named = others.sort().slice(0, MAX_NAMES);
  return { headers, headers_cut: cut, headers_left_out: named.map((name) => name.slice(0, NAME_CHARS)) };
}

function locationOf({ status, headers, url }: FetchedAnswer): string | null {
  const { location } = headers;
  if (location === undefined || status < 300 || status > 399) return null;
  return (parseUrl(location, url)?.href ?? location).slice(0, 2 * VALUE_CHARS);
}

/**
 * Extracts the beginning of the answer's text. A document without extractable text is still evidence.
 * @throws Problem unavailable when the extractor is busy
 */
async function excerptOf(
  { extractor, holder }: Pick<WorkDeps, "extractor" | "holder">,
  answer: FetchedAnswer,
  signal?: AbortSignal,
): Promise<Pick<EvidenceReceipt, "excerpt" | "excerpt_missing">> {
  if (answer.body.length === 0) return { excerpt: null, excerpt_missing: "the body is empty" };
  const asked = {
    bytes: answer.body,
    type: answer.headers["content-type"],
    url: answer.url,
    kinds: ["pdf", "html", "text"] as const,
    most: textOnly(EXCERPT_CHARS),
    ...(holder ? { holder } : {}),
    ...(signal ? { signal } : {}),
  };
  try {
    return { excerpt: (await extractDocument(extractor, asked, "/url")).text, excerpt_missing: null };
  } catch (error) {
    if (!(error instanceof Problem) || error.code !== "not_extracted") throw error;
    return { excerpt: null, excerpt_missing: error.message };
  }
}

/** The work of POST /v1/web/evidence (docs/paid-operations.md). Any answer is evidence, also a 404. */
export const webEvidence: Work<EvidenceRequest, EvidenceReceipt> = {
  id: "webEvidence",
  method: "POST",
  path: "/v1/web/evidence",
  summary: "One address fetched now: status, headers, hash and an excerpt of what it answered, as a signed receipt",
  body: EvidenceRequest,
  example: { url: "https://example.com/" },
  answer: EvidenceReceipt,
  maxBodyBytes: MAX_BODY,
  errors: ["not_fetched", "unavailable"],
  async run({ url, compare_to }, deps, signal) {
    const { egress, clock, signer, holder } = deps;
    const answer = await fetchAnswer(egress, { url, pointer: "/url", hops: 0, holder, signal });
    const fetchedAt = clock.now();
    const [sha256, excerpt] = await Promise.all([sha256hexAsync(answer.body), excerptOf(deps, answer, signal)]);
    const compared = compare_to && ({ to: compare_to, result: compare_to === sha256 ? "same" : "different" } as const);
    const facts: Omit<EvidenceReceipt, "signing_key_id" | "canonicalization" | "signature"> = {
      schema: "svc.evidence.v1",
      url,
      final_url: withoutFragment(answer.url),
      redirects: "not followed",
      location: locationOf(answer),
      status: answer.status,
      ...headersOf(answer.headers),
      peer: { address: answer.remoteAddress, tls: answer.url.startsWith("https:") ? "verified" : "none" },
      body: { sha256, bytes: answer.body.length },
      ...excerpt,
      compared: compared || null,
      fetched_at: rfc3339(fetchedAt),
      took_ms: Math.round(answer.totalMs),
      answered_at: rfc3339(clock.now()),
    };
    return EvidenceReceipt.parse(JSON.parse(signedText(signer, facts)));
  },
};

function withoutFragment(text: string): string {
  const url = new URL(text);
  url.hash = "";
  return url.href;
}
