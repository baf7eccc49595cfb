import { sha256hex } from "../../../infra/canonical.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { valueAt } from "../../record/classes/mapping.ts";
import type { KnownAnswer } from "../../record/classes.ts";
import { checkerOf, variantOf } from "../../record/classes.ts";
import { clean, isObject, MAX_VALUES_LONG_TEXT, type Named, parseJson } from "../json.ts";
import type { Schemas } from "./schema.ts";

type Result = Named<BodyOf<"paid.result">>;

const CHALLENGE = /just a moment|attention required|captcha|cf-chl|_incapsula_|ddos protection|verify you are human/i;

/**
 * Was this answer a wall (403, 429, a bot check) instead of the endpoint's? A page that looks like a bot check counts
 * only if HTML came with a status that such pages use.
 */
export function isWall(status: number, headers: Record<string, string>, body: Uint8Array): boolean {
  if (status === 403 || status === 429) return true;
  if (headers["cf-mitigated"] === "challenge") return true;
  if (status !== 503 && status !== 401 && status !== 200) return false;
  if (!/text\/html/i.test(headers["content-type"] ?? "")) return false;
  return CHALLENGE.test(Buffer.from(body.subarray(0, 16_384)).toString("latin1"));
}

/** The evaluation of what came on a paid connection (the common part of `paid.result` and `paid.followup`). */
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
> & { wall: boolean };

/** What an answer is compared with. Plain data, since it is sent to the reader's thread. */
export interface Expectation {
  /** Name of the class's checker. */
  class: string;
  known: KnownAnswer | null;
  /** The answer's schema from the seller's listing or its 402; undefined when neither has one. */
  schema: unknown;
  /** Declared media type of the answer, or null. */
  mime: string | null;
}

/** Members of an object that is only an error message. */
const ENVELOPE = new Set(
  "error errors message code status statuscode detail details success ok timestamp path type title instance requestid request_id".split(
    " ",
  ),
);

/**
 * Is this an object with `error` or `errors` and only such members as error messages have? An empty `error` is no
 * error.
 */
export function isErrorBody(parsed: unknown): boolean {
  if (!isObject(parsed)) return false;
  const { error, errors } = parsed;
  const says = Array.isArray(errors) ? errors.length > 0 : Boolean(errors);
  if (!error && !says) return false;
  return Object.keys(parsed).every((name) => ENVELOPE.has(name.toLowerCase()));
}

function expectsJson(want: Expectation, headers: Record<string, string>): boolean {
  if (want.mime !== null) return /json/i.test(want.mime);
  return (
    want.schema !== undefined ||
    (want.known !== null && want.known.answer !== null) ||
    /json/i.test(headers["content-type"] ?? "")
  );
}

const score = (value: number): number => Math.round(Math.min(1, Math.max(0, value)) * 1e6) / 1e6;

type Checks = Evaluation["checks"];

/** Longest answer that is searched as text, bytes: as much as any class searches. */
const MAX_TEXT = 500_000;

/** The value that the question asked for: at its pointer in the answer, or the whole answer as text. */
function answerIn({ answer }: KnownAnswer, parsed: unknown, body: Uint8Array): unknown {
  return answer === null ? Buffer.from(body.subarray(0, MAX_TEXT)).toString("utf8") : valueAt(parsed, answer);
}

function deliveryOf(
  result: Extract<EgressResult, { outcome: "answered" }>,
  parsed: unknown,
  value: unknown,
  want: Expectation,
  checks: Checks,
): number {
  const json = expectsJson(want, result.headers);
  const check = (name: string, ok: boolean, says?: string): boolean => {
    checks.push({ name, ok, ...(says && !ok ? { says: clean(says, 500) } : {}) });
    return ok;
  };
  const isHtml = /text\/html/i.test(result.headers["content-type"] ?? "");
  const ok = [
    check("status", result.status >= 200 && result.status < 300, `status ${result.status}`),
    check("parses", !json || parsed !== undefined, "declared as JSON and is none"),
    check("no_error_page", !(json && isHtml && parsed === undefined) && !isErrorBody(parsed), "an error page"),
  ];
  if (!ok.every(Boolean)) return 0;
  const checker = checkerOf(want.class);
  const asked = want.known && variantOf(want.known);
  const of = score(asked ? asked.delivery(value) : (checker.unasked?.(parsed) ?? 1));
  check(`class_${checker.name}`, of === 1, `scored ${of}`);
  return of;
}

/**
 * Evaluates the end of a paid connection. `delivered`: bytes of an answer came before the deadline, which was no demand
 * to pay (402), no wall, and was not cut off. `delivery`: what the answer is worth.
 * @param schemas null when the body cannot be read within bounds: it counts as no JSON, and no schema is tried on it
 * @param again true when a proof was shown again. Then an answer that was cut off after at least one byte is delivered
 * (and worth 0): "nothing came back" is an accusation, and is only made when nothing came
 */
export function evaluate(
  result: EgressResult & { raw?: Uint8Array },
  want: Expectation,
  schemas: Schemas | null,
  again = false,
): Evaluation {
  const body = result.body ?? new Uint8Array();
  // The record hashes the bytes of the wire, also where the answer is a part of them (a tool's).
  const bytes = result.raw ?? body;
  const evaluation: Evaluation = {
    status: result.status ?? null,
    delivered: false,
    delivery: null,
    outcome: want.known ? 0 : null,
    schema_ok: null,
    latency_ms: result.outcome === "answered" ? Math.round(result.totalMs) : null,
    checks: [],
    response_sha256: bytes.length > 0 ? sha256hex(bytes) : null,
    response_bytes: bytes.length,
    wall: result.outcome === "answered" && isWall(result.status, result.headers, body),
  };
  const { checks } = evaluation;
  if (result.outcome !== "answered") {
    // An answer longer than the limit is a useless answer, not a missing one.
    const came = body.length > 0 && (again || result.outcome === "too_large");
    checks.push({ name: "bytes_came", ok: came, says: clean(`${result.outcome}: ${result.says}`, 500) });
    return came ? { ...evaluation, delivered: true, delivery: 0 } : evaluation;
  }
  const refused = result.status === 402 || evaluation.wall;
  evaluation.delivered = body.length > 0 && !refused;
  checks.push({
    name: "bytes_came",
    ok: evaluation.delivered,
    ...(refused ? { says: `status ${result.status}` } : {}),
  });
  if (!evaluation.delivered) return evaluation;
  const parsed = schemas === null ? undefined : parseJson(body, MAX_VALUES_LONG_TEXT);
  const value = want.known && schemas !== null ? answerIn(want.known, parsed, body) : undefined;
  evaluation.delivery = deliveryOf(result, parsed, value, want, checks);
  if (want.known) {
    const truth = evaluation.delivery > 0 ? score(variantOf(want.known)?.score(value, want.known.truth) ?? 0) : 0;
    evaluation.outcome = truth;
    checks.push({ name: "truth", ok: truth === 1, ...(truth === 1 ? {} : { says: `scored ${truth}` }) });
  }
  if (want.schema !== undefined) {
    const none = parsed === undefined ? { ok: false, says: "not JSON" } : undefined;
    const verdict = schemas === null ? null : (none ?? schemas.check(want.schema, parsed));
    evaluation.schema_ok = verdict === null ? null : verdict.ok;
    const says = verdict === null ? "the advertised schema cannot be used" : verdict.says;
    checks.push({ name: "schema", ok: verdict?.ok ?? false, ...(says ? { says: clean(says, 500) } : {}) });
  }
  return evaluation;
}
