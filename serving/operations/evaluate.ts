import { validated } from "../http/problem.ts";
import { freshJson, JSON_TYPE } from "../http/reply.ts";
import { jsonBody } from "../http/request.ts";
import { EvaluateAnswer, EvaluateRequest } from "../schemas/evaluate.ts";
import type { Operation } from "./operation.ts";

/** Longest body: an answer of 256 KiB as text in which every fourth character is escaped, or as base64, and a schema. */
const MAX_BODY = 1024 * 1024;

/** POST /v1/evaluate (docs/route.md). */
export const evaluate: Operation = {
  id: "evaluate",
  method: "POST",
  path: "/v1/evaluate",
  summary: "Would this answer pass an order's checks, and which one fails? Nobody is called, and nothing is kept",
  body: EvaluateRequest,
  answer: EvaluateAnswer,
  type: JSON_TYPE,
  tag: "check",
  ofRecord: true,
  errors: ["unknown_capability", "unavailable"],
  limiter: (service) => service.evaluateLimiter,
  async run({ service, request, limitHeaders }) {
    const asked = validated(EvaluateRequest, await jsonBody(request.body, MAX_BODY));
    return freshJson(await service.evaluations.evaluate(asked), 200, limitHeaders);
  },
};
