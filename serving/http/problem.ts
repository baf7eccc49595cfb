import { FastResponse } from "srvx";
import type { z } from "zod";
import { faultsOf, pointerOf } from "../../pipelines/record/faults.ts";
import type { ProblemDocument } from "../schemas/common.ts";
import { OPEN_HEADERS } from "./open.ts";

/** All errors of the API. `retriable`: the same request may succeed later. */
export const PROBLEMS = {
  bad_request: { status: 400, title: "The request is not valid", retriable: false },
  bad_cursor: { status: 400, title: "The cursor belongs to another log", retriable: false },
  bad_payment: { status: 400, title: "The payment cannot be read", retriable: false },
  bad_token: { status: 401, title: "The token opens no watcher", retriable: false },
  not_the_payee: { status: 401, title: "The signature is not the payee's", retriable: false },
  not_the_wallet: { status: 401, title: "The wallet's signature is missing or wrong", retriable: false },
  not_sold: { status: 403, title: "Calls to this endpoint are not sold here", retriable: false },
  forbidden: { status: 403, title: "The request is not meant for this service", retriable: false },
  unknown_capability: { status: 404, title: "No endpoint with this id is in the record", retriable: true },
  not_found: { status: 404, title: "There is nothing at this address", retriable: false },
  method_not_allowed: { status: 405, title: "This address does not accept this method", retriable: false },
  payment_used: { status: 409, title: "The payment belongs to another order", retriable: false },
  already_there: { status: 409, title: "It is in the record already", retriable: false },
  answer_expired: { status: 410, title: "The answer is not kept any more", retriable: false },
  too_large: { status: 413, title: "The body is too large", retriable: false },
  range_not_satisfiable: { status: 416, title: "The range is outside the object", retriable: false },
  bad_input: { status: 422, title: "The input does not fit the endpoint", retriable: false },
  receiver_failed: { status: 422, title: "The receiver did not echo the challenge", retriable: true },
  not_fetched: { status: 422, title: "The address gave nothing to work on", retriable: true },
  not_extracted: { status: 422, title: "The document cannot be read", retriable: false },
  nothing_relevant: { status: 422, title: "Nothing that was read answers the question", retriable: false },
  too_many_requests: { status: 429, title: "Too many requests", retriable: true },
  too_many_disputes: { status: 429, title: "Too many disputes about this endpoint", retriable: false },
  too_many_watchers: { status: 429, title: "Too many watchers", retriable: false },
  no_price: { status: 502, title: "The seller named no price for this call; nothing was bought", retriable: true },
  seller_failed: { status: 502, title: "The seller's answer did not pass; nothing was charged", retriable: true },
  internal: { status: 500, title: "The service failed", retriable: true },
  not_ready: { status: 503, title: "The record is not loaded yet", retriable: true },
  unavailable: { status: 503, title: "Not now", retriable: true },
  log_unavailable: { status: 503, title: "The log cannot be written now", retriable: true },
} as const;
export type ProblemCode = keyof typeof PROBLEMS;

export interface FieldError {
  /** JSON pointer (RFC 6901) to the wrong parameter or field, such as `/url`. */
  pointer: string;
  detail: string;
}

/** An error that is sent to the client as a problem document (RFC 9457), without a stack or a cause. */
export class Problem extends Error {
  constructor(
    readonly code: ProblemCode,
    detail: string,
    readonly extra: { errors?: FieldError[]; headers?: Record<string, string> } = {},
  ) {
    super(detail);
    this.name = "Problem";
  }
}

/** Returns the document of a problem. @param instance path of the request */
export function problemDocumentOf(problem: Problem, instance: string): ProblemDocument {
  const { status, title } = PROBLEMS[problem.code];
  return {
    type: `/docs/api#${problem.code.replaceAll("_", "-")}`,
    title,
    status,
    detail: problem.message,
    instance: instance.slice(0, 200),
    ...(problem.extra.errors ? { errors: problem.extra.errors } : {}),
  };
}

/** Returns the response of a problem, which must not be cached. @param instance path of the request */
export function problemResponse(problem: Problem, instance: string): Response {
  return new FastResponse(JSON.stringify(problemDocumentOf(problem, instance)), {
    status: PROBLEMS[problem.code].status,
    headers: {
      "content-type": "application/problem+json",
      "cache-control": "no-store",
      ...OPEN_HEADERS,
      ...problem.extra.headers,
    },
  });
}

/** Returns a problem for one invalid field of the request. @param pointer JSON pointer to the field (RFC 6901) */
export const badField = (pointer: string, detail: string): Problem =>
  new Problem("bad_request", `${pointer.slice(1)} ${detail}`, { errors: [{ pointer, detail }] });

/**
 * Validates a value against a schema and returns the parsed value.
 * @throws Problem bad_request with a JSON pointer for each invalid field
 */
export function validate<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const byPointer = new Map<string, string>();
  for (const { path, detail } of faultsOf(result.error)) {
    const pointer = pointerOf(path);
    if (!byPointer.has(pointer)) byPointer.set(pointer, detail);
  }
  const errors = [...byPointer].map(([pointer, detail]) => ({ pointer, detail }));
  const detail = errors.map((error) => `${error.pointer.slice(1)} ${error.detail}`).join("; ");
  throw new Problem("bad_request", detail, { errors });
}

/** Converts a query to an object. A repeated name becomes an array, so that a schema for a single text refuses it. */
export function queryOf(search: URLSearchParams): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of search) {
    const earlier = query[name];
    if (Array.isArray(earlier)) earlier.push(value);
    else query[name] = earlier === undefined ? value : [earlier, value];
  }
  return query;
}
