import { z } from "zod";
import { PLANTED_HEADERS, plantedHtml, plantedPage } from "../../pipelines/record/classes/planted.ts";
import { knownFacts } from "../answers/facts.ts";
import { type FailuresPage, failuresOf } from "../answers/failures.ts";
import type { Service } from "../context.ts";
import { PROBLEMS, Problem, queryOf, validate } from "../http/problem.ts";
import { etagOfText, formAnswer, HTML_TYPE, type Representation, reply, TEXT_TYPE } from "../http/reply.ts";
import { badgeSvg } from "../pages/badge.ts";
import { docsIndexPage } from "../pages/docs.ts";
import { endpointPage } from "../pages/endpoint.ts";
import { type CheckPage, checkPage, homePage, leaderboardPage } from "../pages/home.ts";
import { FORM_HEADERS, PAGE_HEADERS } from "../pages/layout.ts";
import { ALL_BANDS, type MarketQuery, SORTS, type Sort } from "../pages/market.ts";
import { endpointHeaders, PROVE_PAGE, proveHeaders, provePage } from "../pages/prove.ts";
import { GAUGES, statusPage } from "../pages/status.ts";
import { type CheckFacts, CheckQuery } from "../schemas/check.ts";
import { CapId, ONE_TEXT_ERROR } from "../schemas/common.ts";
import type { Call, Operation } from "./operation.ts";

/** Returns a text with an etag of its content, or a 304; by default an HTML page that depends on the record. */
const replyText = (
  { request, limitHeaders }: Call,
  text: string,
  headers: Record<string, string>,
  { type, cache }: Pick<Representation, "type" | "cache"> = { type: HTML_TYPE, cache: "public, max-age=10" },
) => reply(request, text, { type, cache, etag: etagOfText(text), headers: { ...headers, ...limitHeaders } });

/** Cache-Control of texts that change only with a release, and of badges, which other sites embed. */
const CACHE_FIVE_MINUTES = "public, max-age=300";

/** Query of the market's form. An empty field counts as missing, since a browser sends every field of a form. */
const HomeQuery = z.object({
  page: z
    .string(ONE_TEXT_ERROR)
    .regex(/^[1-9]\d{0,6}$/, "must be a whole number from 1")
    .optional(),
  q: z.string(ONE_TEXT_ERROR).max(100, "must be at most 100 characters long").optional(),
  letter: z.enum(["", ...ALL_BANDS], "must be A, B, C, D, F or UNRATED, once").optional(),
  class: z.string(ONE_TEXT_ERROR).max(60, "must be at most 60 characters long").optional(),
  sort: z.enum(["", ...Object.keys(SORTS)], `must be one of ${Object.keys(SORTS).join(", ")}, once`).optional(),
});

const home: Operation = {
  id: "home",
  needsRecord: true,
  path: "/",
  summary: "The market's table",
  query: HomeQuery,
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { page, q, letter, class: kind, sort } = validate(HomeQuery, queryOf(call.query));
    const { follower } = call.service;
    const marketQuery: MarketQuery = {
      page: Number(page ?? 1),
      q: q?.trim() ?? "",
      letter: letter || null,
      kind: kind || null,
      sort: (sort || "best") as Sort,
    };
    return replyText(call, await homePage(follower.view, marketQuery, follower.simulated), FORM_HEADERS);
  },
};

const leaderboard: Operation = {
  id: "leaderboard",
  needsRecord: true,
  path: "/leaderboard",
  summary: "The best endpoints of each class",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { follower } = call.service;
    return replyText(call, leaderboardPage(follower.view, follower.simulated), PAGE_HEADERS);
  },
};

const status: Operation = {
  id: "status",
  path: "/status",
  summary: "How fresh the service is, and what of it is behind",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { follower, clock, statusFigures, askQueue, payOnDelivery, metrics } = call.service;
    const [low, missed, failing, witnesses] = await Promise.all([
      metrics.gauges(GAUGES.low),
      metrics.gauges(GAUGES.missed),
      metrics.gauges(GAUGES.failing),
      metrics.gauges(GAUGES.witnesses),
    ]);
    const { view, snapshot, viewAgeMs } = follower;
    const text = statusPage({
      now: clock.now(),
      simulated: follower.simulated,
      viewAgeMs,
      cosignedAt: snapshot?.head.cosignedAt ?? null,
      view,
      figures: statusFigures.figuresFor(view),
      waitingUrls: askQueue?.size ?? null,
      orders: payOnDelivery?.sales.buying.orders.table.countByState() ?? null,
      gauges: { low, missed, failing, witnesses },
    });
    return replyText(call, text, PAGE_HEADERS);
  },
};

const EndpointParams = z.object({ id: CapId });

/** Limits on the failed calls on a page: their number, and the uncached files that may be read for them. */
const FAILURE_LIMITS = { limit: 5, maxFiles: 16, maxBytes: 8 * 1024 * 1024 };

/** Returns the newest failed calls; null if the evidence cannot be read, and the page is shown without them. */
async function newestFailures(
  { follower, paidRows, baseUrl, logger }: Service,
  cap: string,
): Promise<FailuresPage | null> {
  try {
    return await failuresOf(follower.view, cap, paidRows, { ...FAILURE_LIMITS, baseUrl });
  } catch (error) {
    if (!(error instanceof Problem)) logger.warn({ err: error, cap }, "evidence could not be read for a page");
    return null;
  }
}

const endpoint: Operation = {
  id: "endpointPage",
  needsRecord: true,
  path: "/endpoint/:id",
  summary: "The page of one endpoint",
  params: EndpointParams,
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { id } = validate(EndpointParams, call.params);
    const { follower, clock, history, baseUrl, termsOf, proveFile } = call.service;
    const { view, simulated } = follower;
    if (!view.has(id)) throw new Problem("unknown_capability", `${id} is not in the record`);
    const now = clock.now();
    const facts = knownFacts(view, { url: id }, { cap: id, matched: "exact" }, now);
    const buy = termsOf(view, id);
    const days = await history.daysOf(view, id);
    const failures = await newestFailures(call.service, id);
    const content = { view, cap: id, facts, buy, days, failures, now, simulated, base: baseUrl, proveFile };
    return replyText(call, endpointPage(content), endpointHeaders(facts.scorecard ? proveFile : null, baseUrl));
  },
};

const docsIndex: Operation = {
  id: "docsIndex",
  path: "/docs",
  summary: "The documentation's pages",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run: (call) =>
    replyText(call, docsIndexPage(call.service.docs), PAGE_HEADERS, { type: HTML_TYPE, cache: CACHE_FIVE_MINUTES }),
};

const docs: Operation = {
  id: "docs",
  path: "/docs/:page",
  summary: "A documentation page",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run(call) {
    const doc = call.service.docs.get(call.params.page ?? "");
    if (!doc) throw new Problem("not_found", "there is no such page");
    const type = doc.type === "html" ? HTML_TYPE : TEXT_TYPE;
    return replyText(call, doc.text, PAGE_HEADERS, { type, cache: CACHE_FIVE_MINUTES });
  },
};

/** Adds https to a pasted url that has no scheme. */
const completeUrl = (url: string): string =>
  /^[a-z][a-z0-9+.-]*:\/\//i.test(url) || url.startsWith("cap_") ? url : `https://${url}`;

const CheckPageQuery = z.object({
  url: z.string(ONE_TEXT_ERROR).max(2_048, "must be at most 2048 characters long").optional(),
});

const check: Operation = {
  id: "checkPage",
  needsRecord: true,
  path: "/check",
  summary: "What the record holds about a url, as a page",
  query: CheckPageQuery,
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.checkLimiter,
  async run(call) {
    const { checks, follower } = call.service;
    const url = validate(CheckPageQuery, queryOf(call.query)).url?.trim() ?? "";
    const { simulated } = follower;
    const replyPage = (more: Partial<CheckPage>, status: number) =>
      formAnswer(checkPage({ url, simulated, ...more }), status, call.limitHeaders);
    if (url === "") return replyPage({}, 200);
    try {
      const answer = await checks.answer(validate(CheckQuery, { url: completeUrl(url) }), call.client);
      return replyPage({ facts: JSON.parse(answer.bytes.toString("utf8")) as CheckFacts }, 200);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return replyPage({ error: error.message.replace(/\.$/, "") }, PROBLEMS[error.code].status);
    }
  },
};

const prove: Operation = {
  id: "provePage",
  path: PROVE_PAGE,
  summary: "A page that proves a card, also from the reader's own disk",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { proveFile } = call.service;
    if (!proveFile) throw new Problem("not_found", "it was not built: the service was started from its sources");
    return replyText(call, provePage(proveFile), proveHeaders(proveFile), {
      type: HTML_TYPE,
      cache: CACHE_FIVE_MINUTES,
    });
  },
};

export const PAGES: readonly Operation[] = [docsIndex, docs, home, leaderboard, endpoint, check, prove, status];

const BadgeParams = z.object({ id: CapId });

const SVG_TYPE = "image/svg+xml; charset=utf-8";

/** Headers of a picture: it runs no script even if it is opened as a document, and other sites may embed it. */
const PICTURE_HEADERS = {
  "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
  "cross-origin-resource-policy": "cross-origin",
};

const UNRATED_FACTS = { band: "UNRATED", tier: null } as const;

/** GET /badge/{id}.svg: the letter that GET /v1/check answers for this id, as a picture. An unknown id is unrated. */
export const badge: Operation = {
  id: "badge",
  needsRecord: true,
  path: "/badge/:id.svg",
  summary: "The letter of an endpoint as a picture",
  params: BadgeParams,
  type: SVG_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { id } = validate(BadgeParams, call.params);
    const { follower, clock } = call.service;
    const { view } = follower;
    const facts = view.has(id)
      ? knownFacts(view, { url: id }, { cap: id, matched: "exact" }, clock.now())
      : UNRATED_FACTS;
    return replyText(call, badgeSvg(facts), PICTURE_HEADERS, { type: SVG_TYPE, cache: CACHE_FIVE_MINUTES });
  },
};

/**
 * GET /p/{token}: a page that one endpoint is paid to read, so that its answer can be checked against the page
 * (docs/classes.md). It is computed from its token alone: nothing is looked up, and the request is not recorded.
 */
export const planted: Operation = {
  id: "planted",
  path: "/p/:token",
  summary: "A page that an endpoint is asked to read",
  type: HTML_TYPE,
  // A seller that was paid to read this page must not be refused: its wrong answer would be our fault.
  evenWhenOverloaded: true,
  limiter: (service) => service.readLimiter,
  run({ service, request, params, limitHeaders }) {
    const page =
      service.plantedPageSecret && plantedPage(service.plantedPageSecret, params.token ?? "", service.clock.now());
    if (!page) throw new Problem("not_found", "there is no such page");
    const headers = { ...PLANTED_HEADERS, "content-security-policy": "default-src 'none'; sandbox", ...limitHeaders };
    return reply(request, plantedHtml(page), { type: HTML_TYPE, cache: "no-store", headers });
  },
};
