import type { HTTPResponse } from "h3";
import type { CachedAnswer } from "../http/answer-cache.ts";
import { queryOf, validated } from "../http/problem.ts";
import { JSON_TYPE, reply } from "../http/reply.ts";
import type { Call, Operation } from "../operations.ts";
import { CheckAnswer, CheckQuery } from "../schemas/check.ts";

/** How long a check answer may be kept by anybody, seconds. */
const MAX_AGE_S = 60;

/** GET /v1/check. The bytes are signed once and stand for their minute; `Age` says how much of it is over. */
export const check: Operation = {
  id: "check",
  path: "/v1/check",
  summary: "What the record holds about a paid endpoint, before it is paid",
  query: CheckQuery,
  answer: CheckAnswer,
  type: JSON_TYPE,
  limiter: (service) => service.checkLimiter,
  run(call) {
    const query = validated(CheckQuery, queryOf(call.query));
    const answer = call.service.checks.answer(query, call.client);
    return answer instanceof Promise ? answer.then((made) => respond(call, made)) : respond(call, answer);
  },
};

function respond({ service, request, limitHeaders }: Call, answer: CachedAnswer): HTTPResponse {
  const age = Math.min(MAX_AGE_S, Math.floor(service.checks.age(answer) / 1000));
  return reply(request, answer.text, {
    type: JSON_TYPE,
    cache: `public, max-age=${MAX_AGE_S}`,
    etag: answer.etag,
    headers: { age: String(age), ...limitHeaders },
  });
}
