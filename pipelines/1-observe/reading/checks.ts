import { sha256hex } from "../../../infra/canonical.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { valueAt } from "../../record/classes/mapping.ts";
import type { KnownAnswer } from "../../record/classes.ts";
import { checkerOf, variantOf } from "../../record/classes.ts";
import { clean, isObject, MAX_VALUES_LONG_TEXT, parseJson, type WithoutIndex } from "../json.ts";
import type { Schemas } from "./schema.ts";

type Result = WithoutIndex<BodyOf<"paid.result">>;

const BOT_CHECK = /just a moment|attention required|captcha|cf-chl|_incapsula_|ddos protection|verify you are human/i;

/**
 * Is this answer a wall (403, 429, a bot check) and not the endpoint's own answer? A page that looks like a bot check
 * counts only if it is HTML with a status that bot checks use.
 */
export function isWall(status: number, headers: Record<string, string>, body: Uint8Array): boolean {
  if (status === 403 || status === 429) return true;
  if (headers["cf-mitigated"] === "challenge") return true;
  if (status !== 503 && status !== 401 && status !== 200) return false;
  if (!/text\/html/i.test(headers["content-type"] ?? "")) return false;
  return BOT_CHECK.test(Buffer.from(body.subarray(0, 16_384)).toString("latin1"));
}

/**
 * The evaluation of the answer to a paid request: the members that `paid.result` and `paid.followup` have in common.
 */
export type Evaluation = Pick<
  Result,
  | "status"
  | "delivered"
  | "delivery"
  | "outcome"
  | "schema_ok"
  | "latency_ms"
  | "checks"
  | "response_sha256"
  | "response_bytes"
> & {
  /** Was the answer a wall (a bot check, 403 or 429)? */
  wall: boolean;
};

/** The values with which an answer is compared. They are plain data, since they are sent to the reader's thread. */
export interface Expectation {
  /** Name of the endpoint's class (the kind of questions that it gets), by which its checker is found. */
  class: string;
  /** The question that was asked, with its right answer; null if none was asked. */
  known: KnownAnswer | null;
  /** The declared schema of the answer, from the seller's listing or its 402; undefined when neither has one. */
  schema: unknown;
  /** Declared media type of the answer, or null. */
  mime: string | null;
}

/** Names of members that an object may have if it is only an error message. */
const ERROR_MEMBERS = new Set(
  "error errors message code status statuscode detail details success ok timestamp path type title instance requestid request_id".split(
    " ",
  ),
);

/** Is this an object with a non-empty `error` or `errors` and only members of {@link ERROR_MEMBERS}? */
export function isErrorBody(parsed: unknown): boolean {
  if (!isObject(parsed)) return false;
  const { error, errors } = parsed;
  const hasErrors = Array.isArray(errors) ? errors.length > 0 : Boolean(errors);
  if (!error && !hasErrors) return false;
  return Object.keys(parsed).every((name) => ERROR_MEMBERS.has(name.toLowerCase()));
}

function expectsJson(expectation: Expectation, headers: Record<string, string>): boolean {
  if (expectation.mime !== null) return /json/i.test(expectation.mime);
  return (
    expectation.schema !== undefined ||
    (expectation.known !== null && expectation.known.answer !== null) ||
    /json/i.test(headers["content-type"] ?? "")
  );
}

const clampScore = (value: number): number => Math.round(Math.min(1, Math.max(0, value)) * 1e6) / 1e6;

type CheckList = Evaluation["checks"];

/** Longest part of an answer that is searched as text, bytes. */
const MAX_TEXT_BYTES = 500_000;

/** Returns the value to score: at the question's JSON pointer in the answer, or the whole answer as text. */
function findAnswer({ answer }: KnownAnswer, parsed: unknown, body: Uint8Array): unknown {
  return answer === null ? Buffer.from(body.subarray(0, MAX_TEXT_BYTES)).toString("utf8") : valueAt(parsed, answer);
}

function scoreDelivery(
  result: Extract<EgressResult, { outcome: "answered" }>,
  parsed: unknown,
  value: unknown,
  expectation: Expectation,
  checks: CheckList,
): number {
  const expectsJsonAnswer = expectsJson(expectation, result.headers);
  const addCheck = (name: string, ok: boolean, says?: string): boolean => {
    checks.push({ name, ok, ...(says && !ok ? { says: clean(says, 500) } : {}) });
    return ok;
  };
  const isHtml = /text\/html/i.test(result.headers["content-type"] ?? "");
  const ok = [
    addCheck("status", result.status >= 200 && result.status < 300, `status ${result.status}`),
    addCheck("parses", !expectsJsonAnswer || parsed !== undefined, "declared as JSON and is none"),
    addCheck(
      "no_error_page",
      !(expectsJsonAnswer && isHtml && parsed === undefined) && !isErrorBody(parsed),
      "an error page",
    ),
  ];
  if (!ok.every(Boolean)) return 0;
  const checker = checkerOf(expectation.class);
  const variant = expectation.known && variantOf(expectation.known);
  const score = clampScore(variant ? variant.delivery(value) : (checker.scoreOther?.(parsed) ?? 1));
  addCheck(`class_${checker.name}`, score === 1, `scored ${score}`);
  return score;
}

/**
 * Evaluates the answer to a paid request. `delivered`: bytes of an answer arrived before the deadline, and the answer
 * was no 402, no wall, and not cut off (unless by our own limit of size). `delivery`: the score of the answer. A page
 * with a 2xx status that only looks like a bot check counts as delivered, with score 0, since it may be the page that
 * was paid for: a page reader may return a page with the script of a captcha.
 * @param schemas null when the body cannot be read within bounds; then it counts as no JSON, and it is checked against
 * no schema
 * @param isRepeated true for a repeated request with a payment proof. Then an answer that was cut off after at least
 * one byte counts as delivered (with score 0), since a seller is accused of sending nothing only if nothing arrived
 */
export function evaluate(
  result: EgressResult & { raw?: Uint8Array },
  expectation: Expectation,
  schemas: Schemas | null,
  isRepeated = false,
): Evaluation {
  const body = result.body ?? new Uint8Array();
  // The record has the hash of the received bytes, even where the answer is only a part of them (for a tool).
  const bytes = result.raw ?? body;
  const evaluation: Evaluation = {
    status: result.status ?? null,
    delivered: false,
    delivery: null,
    outcome: expectation.known ? 0 : null,
    schema_ok: null,
    latency_ms: result.outcome === "answered" ? Math.round(result.totalMs) : null,
    checks: [],
    response_sha256: bytes.length > 0 ? sha256hex(bytes) : null,
    response_bytes: bytes.length,
    wall: result.outcome === "answered" && isWall(result.status, result.headers, body),
  };
  const { checks } = evaluation;
  if (result.outcome !== "answered") {
    // An answer longer than the limit counts as delivered with score 0, not as missing.
    const hasBytes = body.length > 0 && (isRepeated || result.outcome === "too_large");
    checks.push({ name: "bytes_came", ok: hasBytes, says: clean(`${result.outcome}: ${result.says}`, 500) });
    return hasBytes ? { ...evaluation, delivered: true, delivery: 0 } : evaluation;
  }
  const isDeliveredPage =
    evaluation.wall &&
    result.status >= 200 &&
    result.status < 300 &&
    result.headers["cf-mitigated"] !== "challenge" &&
    body.length > 0;
  if (isDeliveredPage) {
    checks.push({ name: "bytes_came", ok: true }, { name: "no_error_page", ok: false, says: "a bot check" });
    return { ...evaluation, delivered: true, delivery: 0 };
  }
  const isRefused = result.status === 402 || evaluation.wall;
  evaluation.delivered = body.length > 0 && !isRefused;
  checks.push({
    name: "bytes_came",
    ok: evaluation.delivered,
    ...(isRefused ? { says: `status ${result.status}` } : {}),
  });
  if (!evaluation.delivered) return evaluation;
  const parsed = schemas === null ? undefined : parseJson(body, MAX_VALUES_LONG_TEXT);
  const value = expectation.known && schemas !== null ? findAnswer(expectation.known, parsed, body) : undefined;
  evaluation.delivery = scoreDelivery(result, parsed, value, expectation, checks);
  if (expectation.known) {
    const truthScore =
      evaluation.delivery > 0
        ? clampScore(variantOf(expectation.known)?.score(value, expectation.known.truth) ?? 0)
        : 0;
    evaluation.outcome = truthScore;
    checks.push({ name: "truth", ok: truthScore === 1, ...(truthScore === 1 ? {} : { says: `scored ${truthScore}` }) });
  }
  if (expectation.schema !== undefined) {
    const notJson = parsed === undefined ? { ok: false, says: "not JSON" } : undefined;
    const verdict = schemas === null ? null : (notJson ?? schemas.check(expectation.schema, parsed));
    evaluation.schema_ok = verdict === null ? null : verdict.ok;
    const says = verdict === null ? "the advertised schema cannot be used" : verdict.says;
    checks.push({ name: "schema", ok: verdict?.ok ?? false, ...(says ? { says: clean(says, 500) } : {}) });
  }
  return evaluation;
}
