import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import type { Holder } from "../../infra/shares.ts";
import { OWN_FETCHES } from "../../pipelines/1-observe/queue.ts";
import { platformOf } from "../../pipelines/record/url.ts";
import { Problem } from "../http/problem.ts";
import type { Extracted } from "../schemas/extract.ts";
import { type ExtractionRequest, type Extractor, ExtractorUnavailable, NotExtracted } from "./extract/extractor.ts";

/** A complete HTTP response of a fetched address. */
export type FetchedAnswer = Extract<EgressResult, { outcome: "answered" }>;

/** A fetch of an address that a client named. */
export interface FetchOptions {
  url: string;
  /** JSON pointer to the address in the request's body, for errors. */
  pointer: string;
  /**
   * Largest number of redirects that are followed. Default: the limit of `evidence`, the egress profile (set of limits
   * on outgoing requests) of these fetches.
   */
  hops?: number | undefined;
  /** The client whose fair share of fetches is used. */
  holder?: Holder | undefined;
  /**
   * True: the answer gets a `trace`, which lists every request in order, from redirect to redirect. False (default): it
   * gets none.
   */
  trace?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/** Value of Retry-After, seconds. */
const RETRY_S = 10;

const errorsAt = (pointer: string, detail: string) => ({ errors: [{ pointer, detail }] });
const unavailableProblem = (detail: string): Problem =>
  new Problem("unavailable", detail, { headers: { "retry-after": String(RETRY_S) } });

/**
 * Fetches an address with one GET, within the limits of the egress profile `evidence`. Any complete answer is returned,
 * whatever its status.
 * @throws Problem bad_request for an address that is never fetched, not_fetched without a complete answer (also where
 * the address redirects to one that is never fetched), unavailable for a fault on our side
 */
export async function fetchAnswer(
  egress: Egress,
  { url, pointer, hops, holder, trace, signal }: FetchOptions,
): Promise<FetchedAnswer> {
  const result = await egress.fetch({
    url,
    method: "GET",
    profile: "evidence",
    pool: OWN_FETCHES,
    holder: { ...holder, domain: platformOf(url) },
    headers: { accept: "text/html,application/pdf;q=0.9,*/*;q=0.8" },
    ...(hops === undefined ? {} : { hops }),
    ...(trace === undefined ? {} : { trace }),
    ...(signal ? { signal } : {}),
  });
  if (result.outcome === "answered") return result;
  // When the egress refuses without a reason, the fault is this machine's, not the address's.
  if (result.outcome === "refused" && !result.reason) throw unavailableProblem("nothing can be fetched now");
  // A refusal after a request was sent is of the target of a redirect, which the site chose, not the client.
  if (result.outcome !== "refused" || result.sent) {
    throw new Problem(
      "not_fetched",
      `no whole answer came from ${url}: ${result.says}`,
      errorsAt(pointer, result.says),
    );
  }
  throw new Problem(
    "bad_request",
    `${pointer.slice(1)} is never fetched: ${result.says}`,
    errorsAt(pointer, result.says),
  );
}

/**
 * Fetches a document: an answer with a status of 2xx and a body.
 * @throws Problem as {@link fetchAnswer}; not_fetched for another status and for an empty body
 */
export async function fetchDocument(egress: Egress, options: FetchOptions): Promise<FetchedAnswer> {
  const answer = await fetchAnswer(egress, options);
  const { status, body } = answer;
  const reason =
    status === 402
      ? "it asks for payment (402), and nothing is bought here"
      : status < 200 || status > 299
        ? `it answered with status ${status}`
        : body.length === 0
          ? "its answer is empty"
          : null;
  if (reason === null) return answer;
  throw new Problem("not_fetched", `${options.url}: ${reason}`, errorsAt(options.pointer, reason));
}

/**
 * Extracts a document and converts the extractor's errors to problems.
 * @param pointer JSON pointer to the document in the request's body
 * @throws Problem not_extracted, naming the limit if one was exceeded; unavailable when the extractor is busy
 */
export async function extractDocument<Kind extends Extracted["kind"]>(
  extractor: Extractor,
  request: ExtractionRequest<Kind>,
  pointer: string,
): Promise<Extracted & { kind: Kind }> {
  try {
    return await extractor.read(request);
  } catch (error) {
    if (error instanceof ExtractorUnavailable) throw unavailableProblem(error.message);
    if (!(error instanceof NotExtracted)) throw error;
    const says = error.bound === null ? error.message : `beyond the limit of ${error.bound}: ${error.message}`;
    throw new Problem("not_extracted", says, errorsAt(pointer, says));
  }
}
