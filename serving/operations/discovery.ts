import { z } from "zod";
import type { Service } from "../context.ts";
import { openapiOf } from "../discovery/openapi.ts";
import { etagOfText, JSON_TYPE, reply } from "../http/reply.ts";
import type { Operation } from "./operation.ts";

const FIVE_MINUTES = "public, max-age=300";

/** A document about the service, made of the table at the first request and kept as long as the process runs. */
function description(
  row: Pick<Operation, "id" | "path" | "summary" | "answer"> & { type?: string },
  make: (operations: readonly Operation[], service: Service) => string,
): Operation {
  const made = new WeakMap<Service, { text: string; etag: string }>();
  return {
    type: JSON_TYPE,
    ...row,
    tag: "service",
    cache: FIVE_MINUTES,
    limiter: (service) => service.readLimiter,
    run({ service, operations, request, limitHeaders }) {
      let kept = made.get(service);
      if (!kept) {
        const text = make(operations, service);
        kept = { text, etag: etagOfText(text) };
        made.set(service, kept);
      }
      const { text, etag } = kept;
      return reply(request, text, { type: row.type ?? JSON_TYPE, cache: FIVE_MINUTES, etag, headers: limitHeaders });
    },
  };
}

const openapi = description(
  {
    id: "openapi",
    path: "/openapi.json",
    summary: "This description: OpenAPI 3.1",
    answer: z.looseObject({ openapi: z.string() }),
  },
  (operations, service) => JSON.stringify(openapiOf(operations, service)),
);

/** Descriptions of the service for programs. */
export const DISCOVERY: readonly Operation[] = [openapi];
