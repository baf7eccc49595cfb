import { randomBytes } from "node:crypto";
import { canonicalBytes, sha256hex, sha256hexAsync } from "../../infra/canonical.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { signedText } from "../answers/check.ts";
import { Problem } from "../http/problem.ts";
import { EvidenceAnswer, EvidenceReceipt, EvidenceRequest, SEEN_FROM } from "../schemas/evidence.ts";
import { textOnly } from "./extract/limits.ts";
import { extractDocument, type FetchedAnswer, fetchAnswer } from "./fetching.ts";
import type { Work, WorkDeps } from "./work.ts";

const MAX_BODY_BYTES = 16_384;
const EXCERPT_CHARS = 2_000;
const SALT_BYTES = 32;

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
  const extraction = {
    bytes: answer.body,
    type: answer.headers["content-type"],
    url: answer.url,
    kinds: ["pdf", "html", "text"] as const,
    limits: textOnly(EXCERPT_CHARS),
    ...(holder ? { holder } : {}),
    ...(signal ? { signal } : {}),
  };
  try {
    return { excerpt: (await extractDocument(extractor, extraction, "/url")).text, excerpt_missing: null };
  } catch (error) {
    if (!(error instanceof Problem) || error.code !== "not_extracted") throw error;
    return { excerpt: null, excerpt_missing: error.message };
  }
}

/** Returns the members of the receipt that describe the fetched HTTP response. */
function receiptFieldsOf(answer: FetchedAnswer): Pick<EvidenceReceipt, "final_url" | "hops" | "status" | "headers"> {
  return {
    final_url: withoutFragment(answer.url),
    hops: answer.trace!.map((hop) => ({ ...hop, url: withoutFragment(hop.url) })),
    status: answer.status,
    headers: Object.entries(answer.headers).map(([name, value]) => ({ name, value })),
  };
}

/**
 * The work of POST /v1/web/evidence (docs/paid-operations.md). Any answer is evidence, also a 404. First the body is
 * stored, then the receipt's hash is appended to the log, then the buyer is charged, so that nobody pays for a receipt
 * that cannot be proven.
 */
export const webEvidence: Work<EvidenceRequest, EvidenceAnswer> = {
  id: "webEvidence",
  method: "POST",
  path: "/v1/web/evidence",
  summary:
    "One address fetched now: hops, certificates, headers and body, as a signed receipt that the public log proves",
  body: EvidenceRequest,
  example: { url: "https://example.com/" },
  answer: EvidenceAnswer,
  maxBodyBytes: MAX_BODY_BYTES,
  errors: ["not_fetched", "unavailable", "log_unavailable"],
  async run({ url, compare_to }, deps, signal) {
    const { egress, clock, signer, holder, receipts } = deps;
    if (!receipts) throw new Problem("unavailable", "this service has no store for what was fetched");
    receipts.refuseWhenFull(holder);
    const answer = await fetchAnswer(egress, { url, pointer: "/url", holder, trace: true, signal });
    const fetchedAt = clock.now();
    const [sha256, excerpt] = await Promise.all([sha256hexAsync(answer.body), excerptOf(deps, answer, signal)]);
    const compared = compare_to && ({ to: compare_to, result: compare_to === sha256 ? "same" : "different" } as const);
    const unsigned: Omit<EvidenceReceipt, "signing_key_id" | "canonicalization" | "signature"> = {
      schema: "svc.evidence.receipt.v2",
      url,
      ...receiptFieldsOf(answer),
      body: { sha256, bytes: answer.body.length },
      ...excerpt,
      compared: compared || null,
      seen_from: SEEN_FROM,
      salt: randomBytes(SALT_BYTES).toString("hex"),
      fetched_at: rfc3339(fetchedAt),
      took_ms: Math.round(answer.totalMs),
      answered_at: rfc3339(clock.now()),
    };
    const receipt = EvidenceReceipt.parse(JSON.parse(signedText(signer, unsigned)));
    const receiptSha256 = sha256hex(canonicalBytes(receipt));
    const body = await receipts.keep(answer.body, holder);
    const proof = await receipts.recordHash(receiptSha256);
    return { schema: "svc.evidence.v2", receipt, receipt_sha256: receiptSha256, body, proof };
  },
};

function withoutFragment(text: string): string {
  const url = new URL(text);
  url.hash = "";
  return url.href;
}
