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
  tool: {
    name: "evaluate_answer",
    title: "Would this answer pass?",
    description:
      "Holds an answer that you have (status, content_type, and body as text or base64) against what an order of the endpoint would hold it against: that it is an answer, parses as declared, its class's check, and the schema that you send along. Says whether a buyer would be charged and which check failed. Nobody is called and nothing is kept.",
    run: ({ evaluations }, input) => evaluations.evaluate(validated(EvaluateRequest, input)),
  },
  limiter: (service) => service.evaluateLimiter,
  async run({ service, request, limitHeaders }) {
    const asked = validated(EvaluateRequest, await jsonBody(request.body, MAX_BODY));
    return freshJson(await service.evaluations.evaluate(asked), 200, limitHeaders);
  },
};
