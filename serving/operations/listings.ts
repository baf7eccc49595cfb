import { PROBLEMS, Problem, queryOf, validate } from "../http/problem.ts";
import { etagOfText, formAnswer, HTML_TYPE, JSON_TYPE, refuseOtherSites, reply, uncachedJson } from "../http/reply.ts";
import { readForm, readJson } from "../http/request.ts";
import { type CheckListingPage, checkListingPage } from "../pages/check-listing.ts";
import { FORM_HEADERS } from "../pages/layout.ts";
import { ListingAnswer, ListingQuestion, RetestAnswer, RetestRequest } from "../schemas/listing.ts";
import type { Call, Operation } from "./operation.ts";

/** Longest body, bytes: a url of the largest length, each character escaped, and the other members. */
const MAX_BODY_BYTES = 8_192;

/**
 * POST /v1/listings/validate: probes an endpoint once, now, and answers with its defects and what to change. It gives
 * no letter, and nothing is stored.
 */
export const validateListing: Operation = {
  id: "validateListing",
  needsRecord: true,
  method: "POST",
  path: "/v1/listings/validate",
  summary: "One look at a listing now: every defect with what to change, and whether a stock x402 client would sign",
  body: ListingQuestion,
  answer: ListingAnswer,
  type: JSON_TYPE,
  tag: "check",
  errors: ["unavailable"],
  limiter: (service) => service.listingCheckLimiter,
  async run({ service, request, client, limitHeaders }) {
    const question = validate(ListingQuestion, await readJson(request.body, MAX_BODY_BYTES));
    const answer = await service.listingChecks.answer(question, client);
    return uncachedJson(answer, 200, limitHeaders);
  },
};

/** POST /v1/listings/retest: a seller that proves its payTo has its endpoint queued for a free probe. */
export const retestListing: Operation = {
  id: "retestListing",
  needsRecord: true,
  method: "POST",
  path: "/v1/listings/retest",
  summary: "A seller that proves its payTo has its endpoint looked at again: a free look, no letter, no paid call",
  body: RetestRequest,
  answer: RetestAnswer,
  type: JSON_TYPE,
  tag: "check",
  status: 202,
  errors: ["unknown_capability", "not_the_payee", "unavailable"],
  limiter: (service) => service.listingCheckLimiter,
  async run({ service, request, client, limitHeaders }) {
    const retest = validate(RetestRequest, await readJson(request.body, MAX_BODY_BYTES));
    return uncachedJson(await service.retests.put(retest, client), 202, limitHeaders);
  },
};

const form: Operation = {
  id: "checkMyListing",
  path: "/check-my-listing",
  summary: "The form that has one's own listing looked at",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run({ request, limitHeaders }) {
    const text = checkListingPage({ url: "", method: "" });
    const headers = { ...FORM_HEADERS, ...limitHeaders };
    return reply(request, text, { type: HTML_TYPE, cache: "public, max-age=300", etag: etagOfText(text), headers });
  },
};

/** Reads the fields of the form. A browser also sends fields that are empty. */
async function readFields(request: Call["request"]): Promise<CheckListingPage> {
  const fields = queryOf(await readForm(request.body, MAX_BODY_BYTES));
  const first = (value: string | string[] | undefined): string => (Array.isArray(value) ? value[0]! : (value ?? ""));
  return { url: first(fields.url), method: first(fields.method) };
}

const answerPage: Operation = {
  id: "checkMyListingAnswer",
  needsRecord: true,
  method: "POST",
  path: "/check-my-listing/answer",
  summary: "What a look at one's own listing saw, as a page",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.listingCheckLimiter,
  async run({ service, request, client, limitHeaders }) {
    refuseOtherSites(request);
    const fields = await readFields(request);
    const page = (more: Partial<CheckListingPage>, status: number, headers: Record<string, string> = {}) =>
      formAnswer(checkListingPage({ ...fields, ...more }), status, { ...limitHeaders, ...headers });
    try {
      const { url, method } = fields;
      const question = validate(ListingQuestion, { url, ...(method === "" ? {} : { method }) });
      return page({ answer: await service.listingChecks.answer(question, client) }, 200);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return page({ error: error.message }, PROBLEMS[error.code].status, error.extra.headers);
    }
  },
};

export const LISTING_PAGES: readonly Operation[] = [form, answerPage];
