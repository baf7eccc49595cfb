import { H3, type H3Event, type HTTPError } from "h3";
import { FastResponse } from "srvx";
import { systemClock } from "../infra/clock.ts";
import { type Service, type ServingDeps, serviceOf } from "./context.ts";
import { PROBLEMS, Problem, type ProblemCode, problemResponse } from "./http/problem.ts";
import { HTML_TYPE } from "./http/reply.ts";
import { type Call, isShed, type Operation } from "./operations/operation.ts";
import { OPERATIONS } from "./operations.ts";
import { errorPage, PAGE_HEADERS } from "./pages/layout.ts";

/** Methods of an operation, as `Allow` names them. */
const allowed = ({ method }: Operation): string => method ?? "GET, HEAD";
const takes = ({ method: own }: Operation, method: string): boolean =>
  own === undefined ? method === "GET" || method === "HEAD" : method === own;

/** Methods of an address: of every row that stands under it. */
const allowedAt = (path: string): string =>
  OPERATIONS.filter((operation) => operation.path === path)
    .map(allowed)
    .join(", ");

/** Socket address of the other end; undefined without a socket (tests that call the app directly). */
const peerOf = (event: H3Event): string | undefined => event.runtime?.node?.req.socket.remoteAddress;

/** Seconds after which the first look at the record has most likely ended. */
const FIRST_LOOK_S = "2";

/** Until the first look succeeded the view is empty whatever the record holds. @throws Problem not_ready */
function refuseUnread({ follower }: Service, limitHeaders: Record<string, string>): void {
  if (follower.staleMs !== null) return;
  const headers = { "retry-after": FIRST_LOOK_S, ...limitHeaders };
  throw new Problem("not_ready", "the record has not been read yet", { headers });
}

/** Refuses what is free while this process is behind, unless it asks itself, without a socket. @throws Problem unavailable */
function shed({ overload }: Service, { id }: Operation, peer: string | undefined): void {
  if (peer !== undefined) overload?.refuseFree(id);
}

/** A call, counted against its limit. @throws Problem method_not_allowed, unavailable, too_many_requests, not_ready */
function callOf(service: Service, operation: Operation, event: H3Event): Call {
  const { method, headers } = event.req;
  if (!takes(operation, method)) {
    const allow = allowedAt(operation.path);
    throw new Problem("method_not_allowed", `${method.slice(0, 20)} is not one of ${allow}`, { headers: { allow } });
  }
  const peer = peerOf(event);
  if (isShed(operation)) shed(service, operation, peer);
  const client = service.client(peer, headers.get("x-forwarded-for"));
  const limiter = operation.limiter(service);
  const taken = limiter?.take(client);
  const limitHeaders = limiter && taken ? limiter.headers(taken) : {};
  if (limiter && taken && !taken.ok) {
    const { quota, windowS } = limiter.limit;
    throw new Problem("too_many_requests", `at most ${quota} requests in ${windowS} s`, { headers: limitHeaders });
  }
  if (operation.ofRecord) refuseUnread(service, limitHeaders);
  const { pathname, searchParams } = event.url;
  return {
    service,
    request: { method, headers, body: operation.method === "POST" ? event.req.body : null },
    path: pathname,
    query: searchParams,
    params: event.context.params ?? {},
    client,
    limitHeaders,
    shed: () => shed(service, operation, peer),
    operations: OPERATIONS,
  };
}

/** The answer to an error: the problem it is, or `internal` with nothing of it but a line in our own log. */
function failed(service: Service, operation: Operation | null, event: H3Event, error: unknown): Response {
  const problem = error instanceof Problem ? error : new Problem("internal", "the request could not be answered");
  if (problem.code === "internal") service.logger.error({ err: error, operation: operation?.id }, "a request failed");
  count(service, operation, PROBLEMS[problem.code].status);
  const response = problemResponse(problem, event.url.pathname);
  // An address that is none has no operation: a browser came by a wrong link, a program asks for what it can read.
  const isForPeople = operation === null || operation.page === true;
  if (!isForPeople || !event.req.headers.get("accept")?.includes("text/html")) return response;
  const headers = { ...Object.fromEntries(response.headers), ...PAGE_HEADERS, "content-type": HTML_TYPE };
  return new FastResponse(errorPage(problem), { status: PROBLEMS[problem.code].status, headers });
}

const count = (service: Service, operation: Operation | null, status: number): void =>
  service.metrics.count("touchstone_http_requests_total", {
    operation: operation?.id ?? "none",
    status: String(status),
  });

/** An answer of a paid operation, made where its limit is not known, with the headers of the limit. */
function limited(response: Response, { limitHeaders }: Call): Response {
  for (const [name, value] of Object.entries(limitHeaders)) response.headers.set(name, value);
  return response;
}

/** Answers what comes to one address. @param rows its operations: each has methods of its own */
function handler(service: Service, rows: readonly Operation[]) {
  const done = (operation: Operation, response: Response, began: number): Response => {
    count(service, operation, response.status ?? 200);
    if (operation.id === "check")
      service.metrics.time("touchstone_check_answer_seconds", (systemClock.monotonic() - began) / 1000);
    return response;
  };
  return (event: H3Event): Response | Promise<Response> => {
    const began = systemClock.monotonic();
    const operation = rows.find((row) => takes(row, event.req.method)) ?? rows[0]!;
    const preflight = preflightOf(rows, event.req);
    if (preflight) return done(operation, preflight, began);
    try {
      const call = callOf(service, operation, event);
      const answer = operation.run(call);
      if (!(answer instanceof Promise)) return done(operation, answer, began);
      return answer
        .then((response) => done(operation, operation.price ? limited(response, call) : response, began))
        .catch((error: unknown) => failed(service, operation, event, error));
    } catch (error) {
      return failed(service, operation, event, error);
    }
  };
}

/**
 * What a browser asks before a page of another origin may send a payment, or JSON (Fetch, CORS-preflight). Nothing here hangs
 * on cookies, so every page may ask what everybody may; only what programs call is meant, no form and no tool's server.
 */
function preflightOf(rows: readonly Operation[], { method, headers }: H3Event["req"]): Response | null {
  if (method !== "OPTIONS" || !headers.has("access-control-request-method") || !rows[0]?.tag) return null;
  return new FastResponse(null, {
    status: 204,
    headers: {
      "access-control-allow-origin": "*",
      "access-control-allow-methods": allowedAt(rows[0].path),
      // The official client sends names of its own beside the payment; a wildcard leaves Authorization out.
      "access-control-allow-headers": "*, Authorization",
      "access-control-max-age": "7200",
    },
  });
}

/** What h3 itself refuses, in our codes: an address that cannot be decoded; anything else is our fault. */
const CODES: Record<number, ProblemCode> = { 400: "bad_request", 404: "not_found" };

function refusedByRouter(service: Service, error: HTTPError, event: H3Event): Response {
  const code = error.unhandled ? undefined : CODES[error.status];
  return failed(service, null, event, code ? new Problem(code, PROBLEMS[code].title) : error);
}

/**
 * The app: every operation of the table under its path, in any method (a wrong one is a 405 that names the right ones),
 * and a 404 for everything else. No socket is opened here; `serve` in main.ts does that.
 */
export function createApp(deps: ServingDeps): H3 {
  const service = serviceOf(deps);
  const app = new H3({ silent: true, onError: (error, event) => refusedByRouter(service, error, event) });
  for (const { id: operation } of OPERATIONS)
    for (const status of ["200", "500"]) deps.metrics.count("touchstone_http_requests_total", { operation, status }, 0);
  const paths = new Set(OPERATIONS.map(({ path }) => path));
  for (const path of paths) {
    const rows = OPERATIONS.filter((operation) => operation.path === path);
    app.all(path, handler(service, rows));
  }
  app.all("/**", (event) => failed(service, null, event, new Problem("not_found", "there is nothing at this address")));
  return app;
}
