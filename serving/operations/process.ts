import { Problem } from "../http/problem.ts";
import { reply, TEXT_TYPE } from "../http/reply.ts";
import type { Operation } from "../operations.ts";

/** A replica whose view is older than this is taken out of the line until it follows again. */
export const MAX_STALE_MS = 300_000;

const livez: Operation = {
  id: "livez",
  path: "/livez",
  summary: "The process runs",
  type: TEXT_TYPE,
  limiter: () => null,
  run: ({ request }) => reply(request, "ok\n", { type: TEXT_TYPE, cache: "no-store" }),
};

const readyz: Operation = {
  id: "readyz",
  path: "/readyz",
  summary: "The record is loaded and followed",
  type: TEXT_TYPE,
  limiter: () => null,
  run({ service, request }) {
    const stale = service.follower.staleMs;
    if (stale === null) throw new Problem("not_ready", "the record was not read yet");
    if (stale > MAX_STALE_MS)
      throw new Problem("not_ready", `the record was last read ${Math.round(stale / 1000)} s ago`);
    return reply(request, `ok, ${service.follower.view.size} leaves\n`, { type: TEXT_TYPE, cache: "no-store" });
  },
};

const metrics: Operation = {
  id: "metrics",
  path: "/metrics",
  summary: "Counters and gauges in Prometheus text form",
  type: TEXT_TYPE,
  limiter: () => null,
  run: async ({ service, request }) =>
    reply(request, await service.metrics.text(), {
      type: "text/plain; version=0.0.4; charset=utf-8",
      cache: "no-store",
    }),
};

export const PROCESS: readonly Operation[] = [livez, readyz, metrics];
