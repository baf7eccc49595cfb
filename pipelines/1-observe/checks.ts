import { sha256hex } from "../../infra/canonical.ts";
import type { EgressResult } from "../../infra/egress/egress.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { Checker, KnownAnswer } from "../record/classes/checker.ts";
import { clean, isObject, type Named, parseJson } from "./json.ts";
import type { Schemas } from "./schema.ts";
import { isWall } from "./wall.ts";

type Result = Named<BodyOf<"paid.result">>;

/** What came back on a paid connection, judged (the shared part of `paid.result` and `paid.followup`). */
export type Judgement = Pick<
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

/** What the answer is held against. */
export interface Expectation {
  checker: Checker;
  known: KnownAnswer | null;
  /** The schema the seller's listing or its 402 advertises; undefined when none does. */
  schema: unknown;
  /** Media type it declares, or null. */
  mime: string | null;
}

/** Members of an object that is an error message and nothing else. */
const ENVELOPE = new Set(
  "error errors message code status statuscode detail details success ok timestamp path type title instance requestid request_id".split(
    " ",
  ),
);

/** `{"error": ..}` and nothing beside it but what error messages carry. An answer with an empty `error` is none. */
export function isErrorBody(parsed: unknown): boolean {
  if (!isObject(parsed)) return false;
  const { error, errors } = parsed;
  const says = Array.isArray(errors) ? errors.length > 0 : Boolean(errors);
  if (!error && !says) return false;
  return Object.keys(parsed).every((name) => ENVELOPE.has(name.toLowerCase()));
}

function expectsJson(want: Expectation, headers: Record<string, string>): boolean {
  if (want.mime !== null) return /json/i.test(want.mime);
  return want.schema !== undefined || want.known !== null || /json/i.test(headers["content-type"] ?? "");
}

const score = (value: number): number => Math.round(Math.min(1, Math.max(0, value)) * 1e6) / 1e6;

type Checks = Judgement["checks"];

function deliveryOf(
  result: Extract<EgressResult, { outcome: "answered" }>,
  parsed: unknown,
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
  const of = score(want.checker.delivery(parsed));
  check(`class_${want.checker.name}`, of === 1, `scored ${of}`);
  return of;
}

/**
 * Judges one end of a paid connection. `delivered` says that bytes of an answer came before the deadline: not a demand
 * to pay (402), not a wall, not an answer that broke off. Whether they are worth anything is `delivery`.
 * @param again true for the same proof shown again. There a broken-off answer with at least one byte is delivered (and
 * worth 0): "nothing came back" is an accusation, and it may only be said of a seller from whom nothing came.
 */
export function judge(
  result: EgressResult & { raw?: Uint8Array },
  want: Expectation,
  schemas: Schemas,
  again = false,
): Judgement {
  const body = result.body ?? new Uint8Array();
  // What the record hashes is what came over the wire, also where the answer lay inside of it.
  const bytes = result.raw ?? body;
  const judgement: Judgement = {
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
  const { checks } = judgement;
  if (result.outcome !== "answered") {
    // Past the cap of bytes, bytes did come: it is a useless answer, not a missing one.
    const came = body.length > 0 && (again || result.outcome === "too_large");
    checks.push({ name: "bytes_came", ok: came, says: clean(`${result.outcome}: ${result.says}`, 500) });
    return came ? { ...judgement, delivered: true, delivery: 0 } : judgement;
  }
  const refused = result.status === 402 || judgement.wall;
  judgement.delivered = body.length > 0 && !refused;
  checks.push({ name: "bytes_came", ok: judgement.delivered, ...(refused ? { says: `status ${result.status}` } : {}) });
  if (!judgement.delivered) return judgement;
  const parsed = parseJson(body);
  judgement.delivery = deliveryOf(result, parsed, want, checks);
  if (want.known) {
    const truth = judgement.delivery > 0 ? score(want.known.score(parsed)) : 0;
    judgement.outcome = truth;
    checks.push({ name: "truth", ok: truth === 1, ...(truth === 1 ? {} : { says: `scored ${truth}` }) });
  }
  if (want.schema !== undefined) {
    const verdict = parsed === undefined ? { ok: false, says: "not JSON" } : schemas.check(want.schema, parsed);
    judgement.schema_ok = verdict === null ? null : verdict.ok;
    const says = verdict === null ? "the advertised schema cannot be used" : verdict.says;
    checks.push({ name: "schema", ok: verdict?.ok ?? false, ...(says ? { says: clean(says, 500) } : {}) });
  }
  return judgement;
}
