import { PLANTED_HEADERS, plantedHtml, plantedPage } from "../../pipelines/record/classes/planted.ts";
import { Problem } from "../http/problem.ts";
import { HTML_TYPE, reply } from "../http/reply.ts";
import type { Operation } from "./operation.ts";

/**
 * GET /p/{token}: a page for one reader, by which an endpoint that reads pages is held to the truth (docs/classes.md).
 * It follows from its token alone: nothing is looked up, and nothing says that it was fetched.
 */
export const planted: Operation = {
  id: "planted",
  path: "/p/:token",
  summary: "A page that an endpoint is asked to read",
  type: HTML_TYPE,
  // Whoever was paid to read it must not be refused: a wrong answer would be our doing, and be held against him.
  always: true,
  limiter: (service) => service.readLimiter,
  run({ service, request, params, limitHeaders }) {
    const page = service.pages && plantedPage(service.pages, params.token ?? "", service.clock.now());
    if (!page) throw new Problem("not_found", "there is no such page");
    const headers = { ...PLANTED_HEADERS, "content-security-policy": "default-src 'none'; sandbox", ...limitHeaders };
    return reply(request, plantedHtml(page), { type: HTML_TYPE, cache: "no-store", headers });
  },
};
