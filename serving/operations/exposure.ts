import { PROBLEMS, Problem } from "../http/problem.ts";
import { etagOfText, formAnswer, HTML_TYPE, JSON_TYPE, refuseOtherSites, reply } from "../http/reply.ts";
import { readForm, readJson } from "../http/request.ts";
import { type ExposurePage, exposurePage, type ParsedLines, parseLines } from "../pages/exposure.ts";
import { FORM_HEADERS } from "../pages/layout.ts";
import { ExposureReport, ExposureRequest, MAX_DEPENDENCIES } from "../schemas/exposure.ts";
import type { Operation } from "./operation.ts";

/**
 * Longest body or form: the largest number of dependencies, each with a url of the largest length, an address and a
 * number.
 */
const MAX_BODY_BYTES = MAX_DEPENDENCIES * 2_560;

/** POST /v1/exposure (docs/exposure.md). */
export const exposure: Operation = {
  id: "exposure",
  needsRecord: true,
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
    const body = await readJson(request.body, MAX_BODY_BYTES);
    const { text, headers } = await service.exposures.report(body, client);
    return reply(request, text, { type: JSON_TYPE, cache: "no-store", headers: joinHeaders(limitHeaders, headers) });
  },
};

/** Joins the RateLimit headers of two limits into lists. */
function joinHeaders(one: Record<string, string>, other: Record<string, string>): Record<string, string> {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return Object.fromEntries([...names].map((name) => [name, [one[name], other[name]].filter(Boolean).join(", ")]));
}

const form: Operation = {
  id: "exposurePage",
  path: "/exposure",
  summary: "The form that looks up many endpoints at once",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.readLimiter,
  run({ service, request, limitHeaders }) {
    const text = exposurePage({ text: "", simulated: service.follower.simulated });
    const headers = { ...FORM_HEADERS, ...limitHeaders };
    return reply(request, text, { type: HTML_TYPE, cache: "public, max-age=10", etag: etagOfText(text), headers });
  },
};

/** Returns the faults of a problem, with line numbers of the text field in place of pointers. */
function faultTexts(problem: Problem, { lines }: ParsedLines): string[] {
  const errors = problem.extra.errors ?? [];
  if (errors.length === 0) return [problem.message];
  return errors.map(({ pointer, detail }) => {
    const [, item, field] = /^\/dependencies\/(\d+)(?:\/(\w+))?/.exec(pointer) ?? [];
    return item === undefined ? detail : `Line ${lines[Number(item)]}: ${field ?? "it"} ${detail}`;
  });
}

const report: Operation = {
  id: "exposureReportPage",
  needsRecord: true,
  method: "POST",
  path: "/exposure/report",
  summary: "A report of many endpoints, as a page",
  type: HTML_TYPE,
  page: true,
  limiter: (service) => service.exposureLimiter,
  async run({ service, request, client, limitHeaders }) {
    refuseOtherSites(request);
    const text = (await readForm(request.body, MAX_BODY_BYTES)).get("dependencies") ?? "";
    const page = (more: Partial<ExposurePage>, status: number, headers: Record<string, string> = {}) =>
      formAnswer(exposurePage({ text, simulated: service.follower.simulated, ...more }), status, {
        ...limitHeaders,
        ...headers,
      });
    const parsed = parseLines(text);
    if (parsed.errors.length > 0) return page({ errors: parsed.errors.slice(0, 20) }, 400);
    if (parsed.dependencies.length === 0) return page({ errors: ["The field names no url"] }, 400);
    try {
      const signedReport = await service.exposures.report({ dependencies: parsed.dependencies }, client);
      return page({ report: JSON.parse(signedReport.text) as ExposureReport }, 200);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return page({ errors: faultTexts(error, parsed) }, PROBLEMS[error.code].status, error.extra.headers);
    }
  },
};

export const EXPOSURE_PAGES: readonly Operation[] = [form, report];
