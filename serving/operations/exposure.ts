import { JSON_TYPE, reply } from "../http/reply.ts";
import { jsonBody } from "../http/request.ts";
import { ExposureReport, ExposureRequest, MAX_DEPENDENCIES } from "../schemas/exposure.ts";
import type { Operation } from "./operation.ts";

/** Longest body: every url as long as it may be, and an address and a number beside each. */
const MAX_BODY = MAX_DEPENDENCIES * 2_560;

/** POST /v1/exposure (docs/exposure.md). */
export const exposure: Operation = {
  id: "exposure",
  ofRecord: true,
  method: "POST",
  path: "/v1/exposure",
  summary: "Up to 200 dependencies looked up at once and added up by the address that each one pays",
  body: ExposureRequest,
  answer: ExposureReport,
  type: JSON_TYPE,
  tag: "check",
  limiter: (service) => service.exposureLimiter,
  tool: {
    name: "check_exposure",
    title: "Check everything that you pay",
    description:
      "Up to 200 paid endpoints (urls, or objects with url, calls_per_month and pay_to) looked up at once and added up by the address that each one pays: what took the money, what is unknown, and what a month of it costs. Signed.",
    async run({ exposures }, input, client) {
      return JSON.parse((await exposures.report(input, client)).text) as object;
    },
  },
  async run({ service, request, client, limitHeaders }) {
    const body = await jsonBody(request.body, MAX_BODY);
    const { text, headers } = await service.exposures.report(body, client);
    return reply(request, text, { type: JSON_TYPE, cache: "no-store", headers: both(limitHeaders, headers) });
  },
};

/** Headers of two limits: a list of policies, and of where each one stands. */
function both(one: Record<string, string>, other: Record<string, string>): Record<string, string> {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return Object.fromEntries([...names].map((name) => [name, [one[name], other[name]].filter(Boolean).join(", ")]));
}
