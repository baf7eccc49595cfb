import { type BoughtCall, findKnownAnswer, type TruthParts } from "../../pipelines/1-observe/classes/bought.ts";
import type { Reader } from "../../pipelines/1-observe/reading/reader.ts";
import { NOTHING_DECLARED } from "../../pipelines/1-observe/terms/declared.ts";
import { strongestCheckOf, withFinalResults } from "../../pipelines/orders/judgement.ts";
import { evaluateAnswer } from "../../pipelines/orders/seller.ts";
import { checkerOf, type KnownAnswer } from "../../pipelines/record/classes.ts";
import { sellableOf } from "../buy/eligible.ts";
import { sellerRequest } from "../buy/seller-request.ts";
import { badField, Problem } from "../http/problem.ts";
import { refuseUnusableExpectation } from "../http/usable.ts";
import { type EvaluateAnswer, type EvaluateRequest, MAX_ANSWER_BYTES } from "../schemas/evaluate.ts";
import { headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";

export interface EvaluationDeps {
  view: () => View;
  /**
   * Checks answers in a thread that orders (calls bought through this service) do not use, so that strangers' answers
   * here do not delay those of orders.
   */
  reader: Reader;
  /**
   * Returns the parts that look up right answers, as for bought calls. Absent: only right answers that can be
   * computed are known.
   */
  truths?: () => TruthParts | undefined;
}

/** Largest number of answers that are evaluated at once, since all of them are held in memory. */
const MAX_AT_ONCE = 32;

const SCHEMA_UNUSABLE =
  "The schema cannot be used, within bounds or at all: an order does not hold that against the answer either.";
const ANSWER_NOT_KNOWN = "The input fixes no answer that is known here, so whether it is true was not looked at.";
const NO_SCHEMA =
  "No schema was tried: an order takes the one that the seller's 402 advertises at that moment, and the record does not keep it; send it as schema.";

/** Returns the bytes of the answer in a request. @throws Problem bad_request for an answer that is too long */
function bytesOf({ body, base64 }: EvaluateRequest): Buffer {
  const bytes = base64 === undefined ? Buffer.from(body ?? "", "utf8") : Buffer.from(base64, "base64");
  if (bytes.length <= MAX_ANSWER_BYTES) return bytes;
  throw badField(base64 === undefined ? "/body" : "/base64", `has more than ${MAX_ANSWER_BYTES} bytes`);
}

function describeResult(
  { pass, checks, schema_ok, held_against, judged_by }: Omit<EvaluateAnswer, "says">,
  { input }: EvaluateRequest,
): string {
  const failed = checks.filter(({ ok }) => !ok).map(({ name, says }) => (says ? `${name} (${says})` : name));
  const verdict = pass
    ? "It would pass, and its buyer would be charged."
    : `It would not pass, and nobody would be charged. Failed: ${failed.join(", ") || "delivery"}.`;
  const unknownAnswer = input !== undefined && judged_by !== "truth" ? ` ${ANSWER_NOT_KNOWN}` : "";
  if (held_against.schema)
    return `${verdict}${unknownAnswer}${schema_ok === null && pass ? ` ${SCHEMA_UNUSABLE}` : ""}`;
  return `${verdict}${unknownAnswer} ${NO_SCHEMA}`;
}

/**
 * Returns the call that a request's input describes; null without an endpoint or an input.
 * @throws Problem bad_request for an endpoint whose calls are not made; bad_input for an input that the endpoint does
 * not take
 */
function callOf(view: View, { capability_id: cap, input }: EvaluateRequest): BoughtCall | null {
  if (cap === undefined || input === undefined) return null;
  const sellable = sellableOf(view, cap);
  if ("says" in sellable)
    throw badField("/capability_id", `is of an endpoint whose calls are not made: ${sellable.says}`);
  const { path, query, body } = input;
  const bodyBytes = body === undefined ? null : Buffer.from(JSON.stringify(body));
  const buyerRequest = { path, query: new URLSearchParams(query ?? {}), body: bodyBytes, headers: new Headers() };
  const { url, body: bytes } = sellerRequest(sellable, buyerRequest);
  const entry = view.entry(cap);
  const headline = entry ? headlineOf(entry) : null;
  const isOutcomeVerified = headline?.tier === "OUTCOME_VERIFIED";
  return {
    endpoint: sellable,
    listedClass: entry?.listing?.class,
    hasPassedQuestion: isOutcomeVerified,
    declared: null,
    url,
    body: bytes,
  };
}

/**
 * Runs the checks of an order on an answer that the client already has. No endpoint is called, and nothing is stored.
 */
export class Evaluations {
  #running = 0;

  constructor(private readonly deps: EvaluationDeps) {}

  /** Evaluates the answer in a request. @throws Problem unknown_capability, bad_request, bad_input, unavailable */
  async evaluate(request: EvaluateRequest): Promise<EvaluateAnswer> {
    const held_against = this.#describeExpectation(request);
    const call = callOf(this.deps.view(), request);
    const { expect = null } = request;
    if (expect) await refuseUnusableExpectation(this.deps.reader, expect, "/expect");
    const bytes = bytesOf(request);
    if (this.#running >= MAX_AT_ONCE) {
      throw new Problem("unavailable", "too many answers are being evaluated", { headers: { "retry-after": "2" } });
    }
    this.#running += 1;
    try {
      const { content_type, status, schema } = request;
      const result = {
        ...{ outcome: "answered" as const, status, body: bytes, headersMs: 0, totalMs: 0, remoteAddress: "", url: "" },
        headers: (content_type === undefined ? {} : { "content-type": content_type }) as Record<string, string>,
      };
      const knownAnswer = call && (await this.#findKnownAnswer(call, request));
      const expected = {
        class: knownAnswer?.class ?? held_against.class,
        known: knownAnswer,
        schema,
        mime: held_against.mime,
      };
      const { evaluation, pass, unmet } = await evaluateAnswer(this.deps, result, expected, expect);
      const { delivered, delivery, schema_ok, response_sha256: sha256 } = evaluation;
      const checks = withFinalResults(evaluation.checks, pass || unmet).map(({ name, ok, says }) => ({
        ...{ name, ok, ...(says === undefined ? {} : { says }) },
      }));
      // A schema that cannot be used decided nothing, so `judged_by` does not count it.
      const judged_by = strongestCheckOf({ ...expected, schema: schema_ok === null ? undefined : schema });
      const answer = { schema: "svc.evaluation.v1" as const, pass, judged_by, delivered, delivery, schema_ok, checks };
      const withExpectation = { ...answer, held_against, sha256, bytes: bytes.length };
      return { ...withExpectation, says: describeResult(withExpectation, request) };
    } finally {
      this.#running -= 1;
    }
  }

  /**
   * Finds the question that a call's input asks, and its right answer. Schema and media type of the request stand in
   * for those that the endpoint declares.
   */
  async #findKnownAnswer(
    call: BoughtCall,
    { class: requestedClass, schema, mime }: EvaluateRequest,
  ): Promise<KnownAnswer | null> {
    const declared = { ...NOTHING_DECLARED, outputSchema: schema, mime: mime ?? null };
    const listedClass = requestedClass ?? call.listedClass;
    try {
      return await findKnownAnswer({ ...call, listedClass, declared }, this.deps.truths?.());
    } catch {
      const says = "the right answer for this input cannot be looked up now";
      throw new Problem("unavailable", says, { headers: { "retry-after": "5" } });
    }
  }

  #describeExpectation({
    capability_id: cap,
    class: requestedClass,
    schema,
    mime,
  }: EvaluateRequest): EvaluateAnswer["held_against"] {
    const view = this.deps.view();
    if (cap !== undefined && !view.has(cap)) {
      throw new Problem("unknown_capability", "no endpoint in the record has this id");
    }
    const entry = cap === undefined ? undefined : view.entry(cap);
    const recordedClass = entry && (entry.listing?.class ?? "any");
    const class_from = requestedClass !== undefined ? "request" : recordedClass !== undefined ? "record" : "none";
    const checkerName = checkerOf(requestedClass ?? recordedClass ?? "any").name;
    return { class: checkerName, class_from, schema: schema !== undefined, mime: mime ?? null };
  }
}
