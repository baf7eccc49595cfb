import { HTTPResponse } from "h3";
import { z } from "zod";
import { SignedDispute } from "../../pipelines/corrections/dispute.ts";
import { jsonBody } from "../http/body.ts";
import { validated } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import type { Operation } from "../operations.ts";
import { TrustParams } from "../schemas/trust.ts";

/** Longest body: 2,000 characters of words, each escaped, and the rest of a dispute beside them. */
const MAX_BYTES = 32_768;

const Receipt = z.strictObject({
  dispute: z.looseObject({}),
  event_id: z.string(),
  partition: z.int(),
  offset: z.int(),
});

/** POST /v1/trust/{id}/disputes: a seller's dispute, signed by its payTo (docs/corrections.md). */
export const disputes: Operation = {
  id: "dispute",
  method: "POST",
  path: "/v1/trust/:id/disputes",
  summary: "A seller's dispute, signed by the address that the endpoint is paid at",
  params: TrustParams,
  body: SignedDispute,
  answer: Receipt,
  type: JSON_TYPE,
  limiter: (service) => service.disputeLimiter,
  async run({ service, request, params, limitHeaders }) {
    const { id } = validated(TrustParams, params);
    const receipt = await service.disputes.put(id, await jsonBody(request.body, MAX_BYTES));
    return new HTTPResponse(JSON.stringify(receipt), {
      status: 201,
      headers: {
        "content-type": JSON_TYPE,
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "access-control-allow-origin": "*",
        location: `/v1/trust/${id}`,
        ...limitHeaders,
      },
    });
  },
};
