import { H3, type H3Event } from "h3";
import { FastResponse } from "srvx";
import { systemClock } from "../infra/clock.ts";
import { DEFAULT_LIMITS } from "../infra/config.ts";
import type { ReadableStore } from "../infra/store/directory.ts";
import type { Logger } from "../infra/telemetry.ts";
import { OBJECT_ROOTS, PublicObjects } from "./answers/objects.ts";
import { clientKeyOf, parseProxies } from "./http/limits.ts";
import { Problem, problemResponse } from "./http/problem.ts";
import { Streams } from "./http/streams.ts";

/** Peers whose X-Forwarded-For a mirror trusts: programs on its own machine. */
export const MIRROR_PROXIES = parseProxies(["127.0.0.0/8", "::1"]);

const frontPageText = (sizeText: string): string => `A mirror of a Touchstone record, proven up to ${sizeText}.

/checkpoint        the signed head
/tile/..           hashes and entries (C2SP tlog-tiles)
/segment/N.ndjson.zst, /archive/.., /evidence/.., /index/.., /keys/.., /hint/..

Copy and prove it: touchstone mirror <this address> DIR
`;

/**
 * Creates the app of a mirror. It serves the objects of its public folder under the paths of the original service, a
 * front page, and its health. A mirror holds no key and signs nothing, so its readers verify what they read.
 */
export function createMirrorApp(publicStore: ReadableStore, logger: Logger): H3 {
  const streams = new Streams(DEFAULT_LIMITS, () => systemClock.monotonic());
  const objects = new PublicObjects(publicStore, streams);
  const errorResponse = (event: H3Event, error: unknown): Response => {
    const problem = error instanceof Problem ? error : new Problem("internal", "the object could not be read");
    if (problem.code === "internal") logger.error({ err: error, path: event.url.pathname }, "a request failed");
    return problemResponse(problem, event.url.pathname);
  };
  const createHandler = (answer: (event: H3Event) => Promise<Response>) => (event: H3Event) => {
    const { method } = event.req;
    if (method !== "GET" && method !== "HEAD") {
      const headers = { allow: "GET, HEAD" };
      return errorResponse(event, new Problem("method_not_allowed", "a mirror can only be read", { headers }));
    }
    return answer(event).catch((error: unknown) => errorResponse(event, error));
  };
  const answerObject = createHandler(({ url, req, runtime }) => {
    const { method, headers } = req;
    const peer = runtime?.node?.req.socket.remoteAddress;
    const client = clientKeyOf(peer, headers.get("x-forwarded-for"), MIRROR_PROXIES);
    return objects.answer(url.pathname.slice(1), { method, headers, client });
  });
  const app = new H3({
    silent: true,
    onError: (_error, event) => errorResponse(event, new Problem("bad_request", "the address cannot be read")),
  });
  app.all("/checkpoint", answerObject);
  for (const root of OBJECT_ROOTS) app.all(`/${root}/**`, answerObject);
  app.all(
    "/",
    createHandler(async () => {
      const head = await publicStore.get("checkpoint");
      const sizeText = head ? `${Buffer.from(head.bytes).toString("utf8").split("\n")[1]} leaves` : "nothing yet";
      return new FastResponse(frontPageText(sizeText), { headers: { "content-type": "text/plain; charset=utf-8" } });
    }),
  );
  // The health check of the image asks this path at port 8403, the default port of `mirror serve`.
  app.all(
    "/health",
    createHandler(async () => {
      const isCopied = (await publicStore.get("checkpoint")) !== null;
      const health = { role: "mirror serve", ok: isCopied, problems: isCopied ? [] : ["nothing is copied yet"] };
      const headers = { "content-type": "application/json", "cache-control": "no-store" };
      return new FastResponse(`${JSON.stringify(health)}\n`, { status: isCopied ? 200 : 503, headers });
    }),
  );
  app.all("/**", (event) => errorResponse(event, new Problem("not_found", "a mirror has only objects")));
  return app;
}
