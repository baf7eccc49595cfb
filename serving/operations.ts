import { Problem } from "./http/problem.ts";
import { reply, TEXT_TYPE } from "./http/reply.ts";
import { MCP } from "./mcp/server.ts";
import { DISCOVERY } from "./operations/discovery.ts";
import { EVIDENCE } from "./operations/evidence.ts";
import { EXPOSURE_PAGES, exposure } from "./operations/exposure.ts";
import { LISTING_PAGES, retestListing, validateListing } from "./operations/listings.ts";
import type { Operation } from "./operations/operation.ts";
import { badge, PAGES, planted } from "./operations/pages.ts";
import { PAID } from "./operations/paid.ts";
import { ARCHIVE, KEYS, OBJECTS } from "./operations/record.ts";
import { evaluate, ROUTE } from "./operations/route.ts";
import { search } from "./operations/search.ts";
import { check, disputes, TRUST } from "./operations/trust.ts";
import { BUYING, buyerOrders } from "./operations/via.ts";
import { WATCHERS } from "./operations/watchers.ts";

/** A replica whose last successful refresh is longer ago than this reports that it is not ready, ms. */
const MAX_VIEW_AGE_MS = 300_000;

const livez: Operation = {
  id: "livez",
  path: "/livez",
  summary: "The process runs",
  type: TEXT_TYPE,
  evenWhenOverloaded: true,
  limiter: () => null,
  run: ({ request }) => reply(request, "ok\n", { type: TEXT_TYPE, cache: "no-store" }),
};

const readyz: Operation = {
  id: "readyz",
  path: "/readyz",
  summary: "The record is loaded and followed",
  type: TEXT_TYPE,
  evenWhenOverloaded: true,
  limiter: () => null,
  run({ service, request }) {
    const viewAgeMs = service.follower.viewAgeMs;
    if (viewAgeMs === null) throw new Problem("not_ready", "the record has not been read yet");
    if (viewAgeMs > MAX_VIEW_AGE_MS)
      throw new Problem("not_ready", `the record was last read ${Math.round(viewAgeMs / 1000)} s ago`);
    return reply(request, `ok, ${service.follower.view.size} leaves\n`, { type: TEXT_TYPE, cache: "no-store" });
  },
};

/** All operations, in the order in which the descriptions of the API list them. */
export const OPERATIONS: readonly Operation[] = [
  check,
  ...TRUST,
  ...ARCHIVE,
  ...WATCHERS,
  ...BUYING,
  ...PAID,
  ...EVIDENCE,
  buyerOrders,
  ...ROUTE,
  evaluate,
  exposure,
  search,
  disputes,
  validateListing,
  retestListing,
  KEYS,
  ...DISCOVERY,
  badge,
  MCP,
  ...PAGES,
  ...LISTING_PAGES,
  ...EXPOSURE_PAGES,
  planted,
  ...OBJECTS,
  livez,
  readyz,
];
