import { z } from "zod";
import { knownFacts } from "../answers/facts.ts";
import { validated } from "../http/problem.ts";
import { etagOfText, reply } from "../http/reply.ts";
import { badgeSvg } from "../pages/badge.ts";
import { CapId } from "../schemas/common.ts";
import type { Operation } from "./operation.ts";

const BadgeParams = z.object({ id: CapId });

const SVG_TYPE = "image/svg+xml; charset=utf-8";

/** A picture and nothing more, also where somebody opens it as a document; other sites may show it. */
const PICTURE_HEADERS = {
  "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
  "cross-origin-resource-policy": "cross-origin",
};

const UNKNOWN = { band: "UNRATED", tier: null } as const;

/** GET /badge/{id}.svg: what a check of this id answers, as a picture. An id that the record never met is unrated too. */
export const badge: Operation = {
  id: "badge",
  ofRecord: true,
  path: "/badge/:id.svg",
  summary: "The letter of an endpoint as a picture",
  params: BadgeParams,
  type: SVG_TYPE,
  limiter: (service) => service.readLimiter,
  run({ service, request, params, limitHeaders }) {
    const { id } = validated(BadgeParams, params);
    const { view } = service.follower;
    const facts = view.has(id)
      ? knownFacts(view, { url: id }, { cap: id, matched: "exact" }, service.clock.now())
      : UNKNOWN;
    const svg = badgeSvg(facts);
    return reply(request, svg, {
      type: SVG_TYPE,
      cache: "public, max-age=300",
      etag: etagOfText(svg),
      headers: { ...PICTURE_HEADERS, ...limitHeaders },
    });
  },
};
