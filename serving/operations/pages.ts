import { z } from "zod";
import { knownFacts } from "../answers/facts.ts";
import { etagOfText } from "../answers/trust.ts";
import { Problem, queryOf, validated } from "../http/problem.ts";
import { HTML_TYPE, reply } from "../http/reply.ts";
import type { Call, Operation } from "../operations.ts";
import { endpointPage } from "../pages/endpoint.ts";
import { homePage } from "../pages/home.ts";
import { PAGE_HEADERS } from "../pages/layout.ts";
import { CapId } from "../schemas/common.ts";

const shown = ({ request, limitHeaders }: Call, text: string) =>
  reply(request, text, {
    type: HTML_TYPE,
    cache: "public, max-age=10",
    etag: etagOfText(text),
    headers: { ...PAGE_HEADERS, ...limitHeaders },
  });

const HomeQuery = z.object({
  page: z
    .string({ error: "must be given at most once" })
    .regex(/^[1-9]\d{0,6}$/, "must be a whole number from 1")
    .optional(),
});

const home: Operation = {
  id: "home",
  path: "/",
  summary: "The market's table",
  query: HomeQuery,
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { page } = validated(HomeQuery, queryOf(call.query));
    const { follower, clock } = call.service;
    return shown(call, homePage(follower.view, Number(page ?? 1), clock.lapsed));
  },
};

const EndpointParams = z.object({ id: CapId });

const endpoint: Operation = {
  id: "endpointPage",
  path: "/endpoint/:id",
  summary: "The page of one endpoint",
  params: EndpointParams,
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { id } = validated(EndpointParams, call.params);
    const { follower, clock } = call.service;
    const { view } = follower;
    if (!view.has(id)) throw new Problem("unknown_capability", `${id} is not in the record`);
    const facts = knownFacts(view, { url: id }, { cap: id, matched: "exact" }, clock.now());
    return shown(call, endpointPage(view, id, facts, clock.lapsed));
  },
};

export const PAGES: readonly Operation[] = [home, endpoint];
