import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import type { Holder } from "../../infra/shares.ts";
import { WORK } from "../../pipelines/1-observe/queue.ts";
import { platformOf } from "../../pipelines/record/url.ts";
import { Problem } from "../http/problem.ts";
import type { Extracted } from "../schemas/extract.ts";
import { type ExtractionRequest, type Extractor, ExtractorUnavailable, NotExtracted } from "./extract/extractor.ts";

/** What came from a stranger's address. */
export type FetchedAnswer = Extract<EgressResult, { outcome: "answered" }>;

export interface Fetching {
  url: string;
  /** Where in the body the address stands, for an error that names it. */
  pointer: string;
  /** Redirects that are followed; default: as many as evidence may have. */
  hops?: number | undefined;
  holder?: Holder | undefined;
  signal?: AbortSignal | undefined;
}

/** Seconds after which a place is most likely free. */
const RETRY_S = 10;

const at = (pointer: string, detail: string) => ({ errors: [{ pointer, detail }] });
const notNow = (detail: string): Problem =>
  new Problem("unavailable", detail, { headers: { "retry-after": String(RETRY_S) } });

/**
 * One GET of what a caller named, within the bounds of evidence: whatever it answered, whole.
 * @throws Problem bad_request (an address that is never fetched), not_fetched (no whole answer), unavailable (our side)
 */
export async function fetchAnswer(
  egress: Egress,
  { url, pointer, hops, holder, signal }: Fetching,
): Promise<FetchedAnswer> {
  const result = await egress.fetch({
    url,
    method: "GET",
    profile: "evidence",
    pool: WORK,
    holder: { ...holder, domain: platformOf(url) },
    headers: { accept: "text/html,application/pdf;q=0.9,*/*;q=0.8" },
    ...(hops === undefined ? {} : { hops }),
    ...(signal ? { signal } : {}),
  });
  if (result.outcome === "answered") return result;
  if (result.outcome !== "refused") {
    throw new Problem("not_fetched", `no whole answer came from ${url}: ${result.says}`, at(pointer, result.says));
  }
  // Without a reason the fault is this machine's, and says nothing of the address.
  if (!result.reason) throw notNow("nothing can be fetched now");
  throw new Problem("bad_request", `${pointer.slice(1)} is never fetched: ${result.says}`, at(pointer, result.says));
}

/**
 * The same, where only a document will do.
 * @throws Problem as {@link fetchAnswer}; not_fetched for any status but 2xx and for nothing
 */
export async function fetchDocument(egress: Egress, asked: Fetching): Promise<FetchedAnswer> {
  const answer = await fetchAnswer(egress, asked);
  const { status, body } = answer;
  const wrong =
    status === 402
      ? "it asks for payment (402), and nothing is bought here"
      : status < 200 || status > 299
        ? `it answered with status ${status}`
        : body.length === 0
          ? "its answer is empty"
          : null;
  if (wrong === null) return answer;
  throw new Problem("not_fetched", `${asked.url}: ${wrong}`, at(asked.pointer, wrong));
}

/**
 * What the extractor reads, its faults as problems.
 * @throws Problem not_extracted with the pointer, naming the bound where one was exceeded; unavailable when nobody reads
 */
export async function extractDocument(
  extractor: Extractor,
  asked: ExtractionRequest,
  pointer: string,
): Promise<Extracted> {
  try {
    return await extractor.read(asked);
  } catch (error) {
    if (error instanceof ExtractorUnavailable) throw notNow(error.message);
    if (!(error instanceof NotExtracted)) throw error;
    const says = error.bound === null ? error.message : `beyond the limit of ${error.bound}: ${error.message}`;
    throw new Problem("not_extracted", says, at(pointer, says));
  }
}
