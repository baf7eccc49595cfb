import { EXECUTE_PATH, execute } from "../buy/execute.ts";
import { paymentOf } from "../buy/payments.ts";
import { rankEndpointsFor } from "../buy/plan.ts";
import type { Service } from "../context.ts";
import { validate } from "../http/problem.ts";
import { JSON_TYPE, uncachedJson } from "../http/reply.ts";
import { jsonOf, readBody, readJson } from "../http/request.ts";
import { EvaluateAnswer, EvaluateRequest } from "../schemas/evaluate.ts";
import { ExecuteRequest, PlanAnswer, PlanQuery } from "../schemas/route.ts";
import type { Operation } from "./operation.ts";
import { PURCHASE, sellingOf, wantsPublish } from "./via.ts";

/** Longest body of a request for a plan, bytes. */
const MAX_PLAN_BODY_BYTES = 16_384;
/** Longest body: room for a seller's body as long as `via` accepts, and for the members around it. */
const MAX_EXECUTE_BODY_BYTES = 131_072;

async function planRoute(service: Service, input: unknown): Promise<PlanAnswer> {
  const { sales } = sellingOf(service);
  const query = validate(PlanQuery, input);
  const { baseUrl, clock, follower } = service;
  return rankEndpointsFor(follower.view, query, { baseUrl, seller: sales, now: clock.now() });
}

const plan: Operation = {
  id: "routePlan",
  method: "POST",
  path: "/v1/route/plan",
  summary: "Whom to call for a need, ranked by a written rule, with reasons: from the record alone, nobody is asked",
  body: PlanQuery,
  answer: PlanAnswer,
  type: JSON_TYPE,
  tag: "buy",
  needsRecord: true,
  errors: ["unavailable"],
  tool: {
    name: "plan_route",
    title: "Whom to call for a need",
    description:
      "Ranked candidates for a need in words (optionally a class, a price cap, the least letter, a latency, a method) whose calls can be bought here with payment on delivery: price, fee, total, where to buy, defects, whether a retry is safe, and why each stands where it stands. Made of the record alone; nobody is asked and nothing is bought.",
    run: planRoute,
  },
  limiter: (service) => service.checkLimiter,
  async run({ service, request, limitHeaders }) {
    return uncachedJson(await planRoute(service, await readJson(request.body, MAX_PLAN_BODY_BYTES)), 200, limitHeaders);
  },
};

const executeOperation: Operation = {
  ...PURCHASE,
  id: "routeExecute",
  method: "POST",
  path: EXECUTE_PATH,
  summary:
    "Buy one call from several endpoints, tried in turn: charged once, only if an answer passed. Without a payment: the price, as a 402",
  body: ExecuteRequest,
  errors: ["bad_payment", "payment_used", "answer_expired", "seller_failed", "unavailable", "log_unavailable"],
  async run({ service, request, client, refuseWhenOverloaded }) {
    const selling = sellingOf(service);
    const { headers } = request;
    const payment = paymentOf(headers);
    if (!payment) refuseWhenOverloaded();
    const publish = wantsPublish(headers);
    const bytes = await readBody(request.body, MAX_EXECUTE_BODY_BYTES);
    const executeRequest = validate(ExecuteRequest, jsonOf(bytes));
    return execute(selling, { request: executeRequest, bytes, payment, publish, client });
  },
};

export const ROUTE: readonly Operation[] = [plan, executeOperation];

/**
 * Longest body, bytes. It has room for an answer of 256 KiB, sent as base64 or as text with every fourth character
 * escaped, together with a schema and an input.
 */
const MAX_EVALUATE_BODY_BYTES = 1024 * 1024;

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
  needsRecord: true,
  errors: ["unknown_capability", "bad_input", "unavailable"],
  tool: {
    name: "evaluate_answer",
    title: "Would this answer pass?",
    description:
      "Holds an answer that you have (status, content_type, and body as text or base64) against what an order of the endpoint would hold it against: that it is an answer, parses as declared, its class's check (the right answer, with the input of the call), the schema and your own expectation that you send along. Says whether a buyer would be charged and which check failed. Nobody is called and nothing is kept.",
    run: ({ evaluations }, input) => evaluations.evaluate(validate(EvaluateRequest, input)),
  },
  limiter: (service) => service.evaluateLimiter,
  async run({ service, request, limitHeaders }) {
    const evaluateRequest = validate(EvaluateRequest, await readJson(request.body, MAX_EVALUATE_BODY_BYTES));
    return uncachedJson(await service.evaluations.evaluate(evaluateRequest), 200, limitHeaders);
  },
};
