import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, type ListenOptions, type Socket } from "node:net";
import type { H3 } from "h3";
import { toNodeHandler } from "h3/node";
import { systemClock } from "../infra/clock.ts";
import { LIMITS, type Limits } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import type { Metrics } from "../infra/telemetry.ts";
import { type Cidr, socketKey } from "./http/limits.ts";
import type { Overload } from "./http/overload.ts";
import { guardSockets } from "./http/sockets.ts";

export interface ServeOptions {
  app: H3;
  /** 0 picks a free one. */
  port: number;
  host: string;
  /** Other processes may listen there too, each getting a share of the connections. */
  shared?: boolean;
  /** What sockets may hold, where it differs from {@link LIMITS}. */
  limits?: Partial<Limits>;
  /** Peers whose sockets carry many clients: only their number in total is bounded. */
  proxies?: readonly Cidr[];
  metrics?: Pick<Metrics, "count">;
  /** Is told how many of the sockets are taken, and how long a connection waits until it is. */
  overload?: Pick<Overload, "ofSockets" | "ofAcceptQueue">;
  /** How long answers under way may take once closing began, ms (default 10,000). */
  graceMs?: number;
}

export interface Serving {
  url: string;
  port: number;
  /** Stop listening, let answers under way end, cut what lasts longer than the grace. */
  close(): Promise<void>;
}

/** Longest silence of a socket within a request, and between two of them, ms. */
const SILENCE_MS = 120_000;
const KEEP_ALIVE_MS = 5_000;
/** How often the server looks for requests whose time is over, ms: its own default is 30 s, three times their time. */
const LOOK_MS = 1_000;
/** How often this process connects to its own port, to measure how long a connection waits, ms. */
const SELF_CHECK_MS = 500;
/** Requests of one socket, after which it is closed, so that sockets find their way to other replicas too. */
const MAX_REQUESTS = 10_000;

const CANNOT_LISTEN: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process listens there already",
  EACCES: "this user may not open it",
};

function listen(server: Server, host: string, port: number, shared: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", ({ code = "unknown fault" }: NodeJS.ErrnoException) => {
      const why = CANNOT_LISTEN[code] ?? code;
      reject(new Failure("port", `cannot listen on port ${port} of ${host}: ${why}`));
    });
    // Several processes may share the port where the system and Node (from 22.12) can; elsewhere the second is refused.
    // Else the port is this process's own, also among several that share another one.
    server.listen({ host, port, reusePort: shared, exclusive: !shared } as ListenOptions, resolve);
  });
}

/**
 * How long a connection waits until this process takes it, ms, by one of our own that waits as all others do. Libuv takes
 * one from the system's queue in a turn of its loop (since 1.45: libuv/libuv#3696), so on a busy machine the queue is full,
 * and strangers wait in it until they give up, while no turn is slow.
 */
function acceptWait(server: Server): () => number {
  const { address, port } = server.address() as AddressInfo;
  const host = address === "::" ? "::1" : address === "0.0.0.0" ? "127.0.0.1" : address;
  let check: { socket: Socket; at: number } | null = null;
  let waitedMs = 0;
  const timer = setInterval(() => {
    if (check) return;
    const socket = connect({ port, host }).unref();
    const mine = { socket, at: systemClock.monotonic() };
    check = mine;
    socket.on("error", () => {});
    // It was refused, or dropped because all sockets are taken: that says nothing of the queue.
    socket.once("close", () => {
      if (check === mine) check = null;
    });
  }, SELF_CHECK_MS).unref();
  server.on("connection", ({ remotePort }: Socket) => {
    if (!check || remotePort !== check.socket.localPort) return;
    waitedMs = systemClock.monotonic() - check.at;
    check.socket.destroy();
    check = null;
  });
  server.once("close", () => {
    clearInterval(timer);
    check?.socket.destroy();
  });
  return () => Math.max(waitedMs, check ? systemClock.monotonic() - check.at : 0);
}

/** Listen with the app, within bounds for its sockets. @throws Failure `port` */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { app, port, host, shared, graceMs, proxies = [], metrics } = options;
  const limits = { ...LIMITS, ...options.limits };
  const server = createServer({
    // The server takes no time for headers that is longer than that for the whole.
    headersTimeout: Math.min(limits.headers_timeout_s, limits.request_timeout_s) * 1000,
    requestTimeout: limits.request_timeout_s * 1000,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: LOOK_MS,
  });
  server.maxRequestsPerSocket = MAX_REQUESTS;
  server.timeout = SILENCE_MS;
  const share = guardSockets(server, toNodeHandler(app), limits, (peer) => socketKey(peer, proxies), metrics);
  options.overload?.ofSockets(share);
  await listen(server, host, port, shared === true);
  // Where several processes share the port, another one may take the connection that measures the wait here.
  if (!shared) options.overload?.ofAcceptQueue(acceptWait(server));
  const bound = (server.address() as AddressInfo).port;
  const name = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${name}:${bound}`,
    port: bound,
    close: () =>
      new Promise((resolve) => {
        const cut = setTimeout(() => server.closeAllConnections(), graceMs ?? 10_000);
        server.close(() => {
          clearTimeout(cut);
          resolve();
        });
        server.closeIdleConnections();
      }),
  };
}
