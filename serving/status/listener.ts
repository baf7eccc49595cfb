import { statfsSync } from "node:fs";
import { H3 } from "h3";
import { buildInfo } from "../../infra/build-info.ts";
import type { Config } from "../../infra/config.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { serve } from "../main.ts";
import { Pulse, type PulseParts } from "./pulse.ts";

/** Largest number of sockets, enough for a few collectors and an operator. */
const MAX_SOCKETS = 64;
const CLOSE_GRACE_MS = 1_000;

/** The pulse of a role, and its status listener if one was opened. */
export interface Status {
  pulse: Pulse;
  /** Address of the listener; null when none was opened. */
  url: string | null;
  close(): Promise<void>;
}

const respond = (status: number, type: string, body: string, moreHeaders: Record<string, string> = {}): Response =>
  new Response(body, { status, headers: { "content-type": type, "cache-control": "no-store", ...moreHeaders } });

/** Returns the free bytes on the disk of a folder and sets the gauges; null while the folder does not exist. */
function measureFreeBytes(folder: string, metrics: Pick<Metrics, "gauge">): number | null {
  try {
    const { bavail, blocks, bsize } = statfsSync(folder);
    metrics.gauge("touchstone_data_free_bytes", bavail * bsize);
    metrics.gauge("touchstone_data_size_bytes", blocks * bsize);
    return bavail * bsize;
  } catch {
    return null;
  }
}

/** Creates the app of the status listener: `/metrics` in Prometheus text, `/health` as JSON with 200 or 503. */
export function createStatusApp(pulse: Pulse, metrics: Pick<Metrics, "text">): H3 {
  const pages: Record<string, () => Promise<Response>> = {
    "/metrics": async () => {
      pulse.health();
      return respond(200, "text/plain; version=0.0.4; charset=utf-8", await metrics.text());
    },
    "/health": async () => {
      const health = pulse.health();
      return respond(health.ok ? 200 : 503, "application/json", `${JSON.stringify(health, null, 2)}\n`);
    },
  };
  return new H3().all("/**", ({ req, url }) => {
    const page = pages[url.pathname];
    if (!page) return respond(404, "text/plain", "see /health and /metrics\n");
    if (req.method === "GET" || req.method === "HEAD") return page();
    return respond(405, "text/plain", "only GET and HEAD\n", { allow: "GET, HEAD" });
  });
}

/**
 * Creates the pulse (health) of a role, and opens its status listener if `status.port` is set.
 * @param listen true: the listener is opened if a port is set. false: it is not, as for a command that ends by itself
 * @param firstWork the work that has to succeed once before the role counts as started
 * @throws Failure `port` when the port is taken
 */
export async function openStatus(
  config: Pick<Config, "status" | "data_dir" | "revision">,
  { listen, ...parts }: Omit<PulseParts, "patienceMs"> & { listen: boolean },
  firstWork: string,
): Promise<Status> {
  const { host, port, patience_s } = config.status;
  const freeBytes = () => measureFreeBytes(config.data_dir, parts.metrics);
  const pulse = new Pulse({ ...parts, freeBytes, patienceMs: patience_s * 1000 }, firstWork);
  if (port === null || !listen) return { pulse, url: null, close: async () => undefined };
  const app = createStatusApp(pulse, parts.metrics);
  parts.metrics.gauge("touchstone_build_info", 1, { ...buildInfo(config) });
  const { url, close } = await serve({
    app,
    host,
    port,
    limits: { sockets: MAX_SOCKETS, sockets_per_client: MAX_SOCKETS },
    graceMs: CLOSE_GRACE_MS,
  });
  return { pulse, url, close };
}
