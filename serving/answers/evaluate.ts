import type { Reader } from "../../pipelines/1-observe/reading/reader.ts";
import { evaluateAnswer } from "../../pipelines/orders/seller.ts";
import { checkerOf } from "../../pipelines/record/classes.ts";
import { badField, Problem } from "../http/problem.ts";
import { type EvaluateAnswer, type EvaluateRequest, MAX_ANSWER_BYTES } from "../schemas/evaluate.ts";
import type { View } from "../tables/view.ts";

export interface EvaluationDeps {
  view: () => View;
  /** A reader with a thread of its own, so that strangers' answers here do not delay the answers of orders. */
  reader: Reader;
}

/** Largest number of answers that are evaluated at once, since all of them are held in memory. */
const MAX_AT_ONCE = 32;

const UNUSABLE =
  "The schema cannot be used, within bounds or at all: an order does not hold that against the answer either.";
const NO_SCHEMA =
  "No schema was tried: an order takes the one that the seller's 402 advertises at that moment, and the record does not keep it; send it as schema.";

/** @throws Problem bad_request for an answer that is too long */
function bytesOf({ body, base64 }: EvaluateRequest): Buffer {
  const bytes = base64 === undefined ? Buffer.from(body ?? "", "utf8") : Buffer.from(base64, "base64");
  if (bytes.length <= MAX_ANSWER_BYTES) return bytes;
  throw badField(base64 === undefined ? "/body" : "/base64", `has more than ${MAX_ANSWER_BYTES} bytes`);
}

function wordsOf({ pass, checks, schema_ok, held_against }: Omit<EvaluateAnswer, "says">): string {
  const failed = checks.filter(({ ok }) => !ok).map(({ name, says }) => (says ? `${name} (${says})` : name));
  const verdict = pass
    ? "It would pass, and its buyer would be charged."
    : `It would not pass, and nobody would be charged. Failed: ${failed.join(", ") || "delivery"}.`;
  if (held_against.schema) return schema_ok === null && pass ? `${verdict} ${UNUSABLE}` : verdict;
  return `${verdict} ${NO_SCHEMA}`;
}

/**
 * Evaluates an answer by the checks of an order, for a client that has the answer already. No endpoint is called, and
 * nothing is kept.
 */
export class Evaluations {
  #running = 0;

  constructor(private readonly deps: EvaluationDeps) {}

  /** @throws Problem unknown_capability, bad_request, unavailable */
  async evaluate(asked: EvaluateRequest): Promise<EvaluateAnswer> {
    const held_against = this.#expected(asked);
    const bytes = bytesOf(asked);
    if (this.#running >= MAX_AT_ONCE) {
      throw new Problem("unavailable", "too many answers are being evaluated", { headers: { "retry-after": "2" } });
    }
    this.#running += 1;
    try {
      const { content_type, status, schema } = asked;
      const result = {
        ...{ outcome: "answered" as const, status, body: bytes, headersMs: 0, totalMs: 0, remoteAddress: "", url: "" },
        headers: (content_type === undefined ? {} : { "content-type": content_type }) as Record<string, string>,
      };
      const want = { class: held_against.class, known: null, schema, mime: held_against.mime };
      const { evaluation, pass } = await evaluateAnswer(this.deps, result, want, null);
      const { delivered, delivery, schema_ok, checks, response_sha256: sha256 } = evaluation;
      const shown = checks.map(({ name, ok, says }) => ({ name, ok, ...(says === undefined ? {} : { says }) }));
      const answer = { schema: "svc.evaluation.v1" as const, pass, delivered, delivery, schema_ok, checks: shown };
      const whole = { ...answer, held_against, sha256, bytes: bytes.length };
      return { ...whole, says: wordsOf(whole) };
    } finally {
      this.#running -= 1;
    }
  }

  #expected({ capability_id: cap, class: given, schema, mime }: EvaluateRequest): EvaluateAnswer["held_against"] {
    const view = this.deps.view();
    if (cap !== undefined && !view.has(cap)) {
      throw new Problem("unknown_capability", "no endpoint in the record has this id");
    }
    const entry = cap === undefined ? undefined : view.entry(cap);
    const kept = entry && (entry.listing?.class ?? "any");
    const class_from = given !== undefined ? "request" : kept !== undefined ? "record" : "none";
    const kind = checkerOf(given ?? kept ?? "any").name;
    return { class: kind, class_from, schema: schema !== undefined, mime: mime ?? null };
  }
}
