import { H3, type H3Event, type HTTPError } from "h3";
import { FastResponse } from "srvx";
import { systemClock } from "../infra/clock.ts";
import { createService, type Service, type ServingDeps } from "./context.ts";
import { PROBLEMS, Problem, type ProblemCode, problemResponse } from "./http/problem.ts";
import { HTML_TYPE } from "./http/reply.ts";
import { type Call, isRefusedWhenOverloaded, type Operation } from "./operations/operation.ts";
import { OPERATIONS } from "./operations.ts";
import { errorPage, PAGE_HEADERS } from "./pages/layout.ts";

/** Returns the value of `Allow` for an operation. */
const allowHeader = ({ method }: Operation): string => method ?? "GET, HEAD";
const acceptsMethod = ({ method: allowedMethod }: Operation, method: string): boolean =>
  allowedMethod === undefined ? method === "GET" || method === "HEAD" : method === allowedMethod;

/** Returns the value of `Allow` for a path, from all operations at that path. */
const allowHeaderAt = (path: string): string =>
  OPERATIONS.filter((operation) => operation.path === path)
    .map(allowHeader)
    .join(", ");

/**
 * Returns the address at the other end of the socket; undefined for a request without a socket, which code of this
 * process passes to the app directly.
 */
const peerOf = (event: H3Event): string | undefined => event.runtime?.node?.req.socket.remoteAddress;

/** Retry-After, seconds. By then the first refresh of the view has most likely ended. */
const FIRST_REFRESH_RETRY_S = "2";

/**
 * Refuses requests until the first refresh of the view (the state that answers are made from) succeeded: until then
 * the view is empty whatever the record holds.
 * @throws Problem not_ready
 */
function refuseUntilFirstView({ follower }: Service, limitHeaders: Record<string, string>): void {
  if (follower.viewAgeMs !== null) return;
  const headers = { "retry-after": FIRST_REFRESH_RETRY_S, ...limitHeaders };
  throw new Problem("not_ready", "the record has not been read yet", { headers });
}

/**
 * Refuses free operations while this process is overloaded. Requests without a socket are sent by this process itself
 * and pass.
 * @throws Problem unavailable
 */
function refuseWhenOverloaded({ overload }: Service, { id }: Operation, peer: string | undefined): void {
  if (peer !== undefined) overload?.refuseFree(id);
}

/**
 * Checks a request, counts it against the operation's limit, and returns it as the {@link Call} that the operation
 * gets.
 * @throws Problem method_not_allowed, unavailable, too_many_requests, not_ready
 */
function admitCall(service: Service, operation: Operation, event: H3Event): Call {
  const { method, headers } = event.req;
  if (!acceptsMethod(operation, method)) {
    const allow = allowHeaderAt(operation.path);
    throw new Problem("method_not_allowed", `${method.slice(0, 20)} is not one of ${allow}`, { headers: { allow } });
  }
  const peer = peerOf(event);
  if (isRefusedWhenOverloaded(operation)) refuseWhenOverloaded(service, operation, peer);
  const client = service.clientKeyOf(peer, headers.get("x-forwarded-for"));
  const limiter = operation.limiter(service);
  const decision = limiter?.take(client);
  const limitHeaders = limiter && decision ? limiter.headers(decision) : {};
  if (limiter && decision && !decision.ok) {
    const { quota, windowS } = limiter.limit;
    throw new Problem("too_many_requests", `at most ${quota} requests in ${windowS} s`, { headers: limitHeaders });
  }
  if (operation.needsRecord) refuseUntilFirstView(service, limitHeaders);
  const { pathname, searchParams } = event.url;
  return {
    service,
    request: { method, headers, body: operation.method === "POST" ? event.req.body : null },
    path: pathname,
    query: searchParams,
    params: event.context.params ?? {},
    client,
    limitHeaders,
    refuseWhenOverloaded: () => refuseWhenOverloaded(service, operation, peer),
    operations: OPERATIONS,
  };
}

/**
 * Returns the response for an error: the problem document of a {@link Problem}; for any other error that of `internal`,
 * whose cause is written only to our own log.
 */
function errorResponse(service: Service, operation: Operation | null, event: H3Event, error: unknown): Response {
  const problem = error instanceof Problem ? error : new Problem("internal", "the request could not be answered");
  if (problem.code === "internal") service.logger.error({ err: error, operation: operation?.id }, "a request failed");
  countRequest(service, operation, PROBLEMS[problem.code].status);
  const response = problemResponse(problem, event.url.pathname);
  // An unknown address has no operation: a browser gets a page (it followed a wrong link), a program gets the problem
  // document.
  const isForPeople = operation === null || operation.page === true;
  if (!isForPeople || !event.req.headers.get("accept")?.includes("text/html")) return response;
  const headers = { ...Object.fromEntries(response.headers), ...PAGE_HEADERS, "content-type": HTML_TYPE };
  return new FastResponse(errorPage(problem), { status: PROBLEMS[problem.code].status, headers });
}

const countRequest = (service: Service, operation: Operation | null, status: number): void =>
  service.metrics.count("touchstone_http_requests_total", {
    operation: operation?.id ?? "none",
    status: String(status),
  });

/** Adds the headers of the rate limit to an answer of a paid operation, which `run` made without them. */
function withLimitHeaders(response: Response, { limitHeaders }: Call): Response {
  for (const [name, value] of Object.entries(limitHeaders)) response.headers.set(name, value);
  return response;
}

/** Creates the handler of one path. @param rows the operations at that path, which differ in their methods */
function createHandler(service: Service, rows: readonly Operation[]) {
  const countResponse = (operation: Operation, response: Response, startedAt: number): Response => {
    countRequest(service, operation, response.status ?? 200);
    if (operation.id === "check")
      service.metrics.time("touchstone_check_answer_seconds", (systemClock.monotonic() - startedAt) / 1000);
    return response;
  };
  return (event: H3Event): Response | Promise<Response> => {
    const startedAt = systemClock.monotonic();
    const operation = rows.find((row) => acceptsMethod(row, event.req.method)) ?? rows[0]!;
    const preflight = answerPreflight(rows, event.req);
    if (preflight) return countResponse(operation, preflight, startedAt);
    try {
      const call = admitCall(service, operation, event);
      const answer = operation.run(call);
      if (!(answer instanceof Promise)) return countResponse(operation, answer, startedAt);
      return answer
        .then((response) =>
          countResponse(operation, operation.price ? withLimitHeaders(response, call) : response, startedAt),
        )
        .catch((error: unknown) => errorResponse(service, operation, event, error));
    } catch (error) {
      return errorResponse(service, operation, event, error);
    }
  };
}

/**
 * Answers a CORS preflight: the request that a browser sends before a page of another origin may send a payment or
 * JSON (Fetch, CORS-preflight). No operation relies on cookies, so every page may call what anybody may call. Forms
 * and the MCP server are left out, since pages need neither.
 * @returns null for a request that is no preflight, and for forms and the MCP server
 */
function answerPreflight(rows: readonly Operation[], { method, headers }: H3Event["req"]): Response | null {
  if (method !== "OPTIONS" || !headers.has("access-control-request-method") || !rows[0]?.tag) return null;
  return new FastResponse(null, {
    status: 204,
    headers: {
      "access-control-allow-origin": "*",
      "access-control-allow-methods": allowHeaderAt(rows[0].path),
      // x402's own client sends further header names beside the payment; a wildcard would not cover Authorization.
      "access-control-allow-headers": "*, Authorization",
      "access-control-max-age": "7200",
    },
  });
}

/**
 * Our problem codes for errors of h3: a path that cannot be decoded, and an unknown path. Any other error of h3 is our
 * own fault.
 */
const ROUTER_PROBLEMS: Record<number, ProblemCode> = { 400: "bad_request", 404: "not_found" };

function routerErrorResponse(service: Service, error: HTTPError, event: H3Event): Response {
  const code = error.unhandled ? undefined : ROUTER_PROBLEMS[error.status];
  return errorResponse(service, null, event, code ? new Problem(code, PROBLEMS[code].title) : error);
}

/**
 * Creates the app: every operation of the table under its path, and a 404 for any other path. A method that the path
 * does not have gets a 405 that names those it has. No socket is opened here; `serve` in main.ts does that.
 */
export function createApp(deps: ServingDeps): H3 {
  const service = createService(deps);
  const app = new H3({ silent: true, onError: (error, event) => routerErrorResponse(service, error, event) });
  for (const { id: operation } of OPERATIONS)
    for (const status of ["200", "500"]) deps.metrics.count("touchstone_http_requests_total", { operation, status }, 0);
  const paths = new Set(OPERATIONS.map(({ path }) => path));
  for (const path of paths) {
    const rows = OPERATIONS.filter((operation) => operation.path === path);
    app.all(path, createHandler(service, rows));
  }
  app.all("/**", (event) =>
    errorResponse(service, null, event, new Problem("not_found", "there is nothing at this address")),
  );
  return app;
}
