import { createHash } from "node:crypto";
import { H3 } from "h3";
import { FastResponse } from "srvx";
import type { Logger } from "../infra/telemetry.ts";
import { createCheckpointsPage } from "../pipelines/monitor/peers.ts";
import type { MonitorState } from "../pipelines/monitor/state.ts";

const COMMON_HEADERS = { "cache-control": "no-store", "x-content-type-options": "nosniff" } as const;

const respondText = (status: number, text: string): Response =>
  new FastResponse(`${text}\n`, {
    status,
    headers: { "content-type": "text/plain; charset=utf-8", ...COMMON_HEADERS },
  });

/**
 * Returns the parameter `after`, the number of the checkpoint after which the page begins; null if it is absent (the
 * newest page is asked for), undefined if it is no number.
 */
function parseAfter(url: URL): number | null | undefined {
  const text = url.searchParams.get("after");
  if (text === null) return null;
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/**
 * Creates the app over which other monitors read the checkpoints that this monitor saw (docs/monitor.md), at
 * `/checkpoints` and at `/<sha256 of the origin>/checkpoints`. `/` names the log that it follows.
 * @param readOrigin returns the origin of the log; null before the first checkpoint
 */
export function createMonitorApp(state: MonitorState, readOrigin: () => string | null, logger: Logger): H3 {
  const app = new H3({
    silent: true,
    onError: (error) => {
      logger.error({ err: error }, "checkpoints could not be read");
      return respondText(503, "this monitor cannot read its state");
    },
  });
  const answer = (url: URL): Response => {
    const origin = readOrigin();
    if (origin === null) return respondText(404, "this monitor has seen no checkpoint yet");
    const after = parseAfter(url);
    if (after === undefined) return respondText(400, "after: a number of a checkpoint");
    const body = JSON.stringify(createCheckpointsPage(state, origin, after));
    return new FastResponse(body, { headers: { "content-type": "application/json", ...COMMON_HEADERS } });
  };
  app.get("/checkpoints", ({ url }) => answer(url));
  app.get("/:hash/checkpoints", ({ url, context }) => {
    const origin = readOrigin();
    const isOurs = origin !== null && createHash("sha256").update(origin).digest("hex") === context.params?.hash;
    return isOurs ? answer(url) : respondText(404, "this monitor does not follow that log");
  });
  app.get("/", () => {
    const head = state.readHead();
    const log = readOrigin() ?? "no log yet";
    return respondText(200, `monitor of ${log}: ${head ? `${head.size} leaves are proven` : "nothing is proven"}`);
  });
  app.all("/**", () => respondText(404, "a monitor has /checkpoints"));
  return app;
}
