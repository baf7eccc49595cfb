import { etagOfText } from "../answers/trust.ts";
import { Problem } from "../http/problem.ts";
import { HTML_TYPE, JSON_TYPE, reply, TEXT_TYPE } from "../http/reply.ts";
import type { Operation } from "../operations.ts";
import { PAGE_HEADERS } from "../pages/layout.ts";
import { MINUTE, replyJson } from "./json-text.ts";

const keys: Operation = {
  id: "keys",
  path: "/.well-known/svc-keys.json",
  summary: "The published signing keys, retired ones too (JWKS)",
  type: JSON_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    return replyJson(call, JSON.stringify(call.service.jwks()), MINUTE);
  },
};

const docs: Operation = {
  id: "docs",
  path: "/docs/:page",
  summary: "A documentation page",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run({ service, request, params, limitHeaders }) {
    const doc = service.docs.get(params.page ?? "");
    if (!doc) throw new Problem("not_found", "there is no such page");
    return reply(request, doc.text, {
      type: doc.type === "html" ? HTML_TYPE : TEXT_TYPE,
      cache: "public, max-age=300",
      etag: etagOfText(doc.text),
      headers: { ...PAGE_HEADERS, ...limitHeaders },
    });
  },
};

export const DISCOVERY: readonly Operation[] = [keys, docs];
