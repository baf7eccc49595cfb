import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, type ListenOptions, type Socket } from "node:net";
import type { H3 } from "h3";
import { toNodeHandler } from "h3/node";
import { systemClock } from "../infra/clock.ts";
import { DEFAULT_LIMITS, type Limits } from "../infra/config.ts";
import type { Range } from "../infra/egress/address.ts";
import { Failure } from "../infra/errors.ts";
import type { Metrics } from "../infra/telemetry.ts";
import { socketKeyOf } from "./http/limits.ts";
import type { Overload } from "./http/overload.ts";
import { guardSockets } from "./http/sockets.ts";

export interface ServeOptions {
  app: H3;
  /** Port to listen on; 0 picks a free port. */
  port: number;
  host: string;
  /**
   * True if other processes may listen on the port too; each then gets a share of the connections. False (default): the
   * port belongs to this process alone.
   */
  shared?: boolean;
  /** Limits on sockets that replace those in {@link DEFAULT_LIMITS}. */
  limits?: Partial<Limits>;
  /** Peers whose sockets carry many clients' requests. Only their total number is limited. */
  proxies?: readonly Range[];
  metrics?: Pick<Metrics, "count">;
  /**
   * Receives the functions that return the share of sockets in use, and the time that a connection waits to be
   * accepted.
   */
  overload?: Pick<Overload, "setSocketShare" | "setAcceptWait">;
  /** Longest time for running answers after closing began, ms (default 10,000). */
  graceMs?: number;
}

export interface Serving {
  url: string;
  port: number;
  /** Stops listening, lets running answers end, and cuts those that take longer than the grace period. */
  close(): Promise<void>;
}

/** Longest silence of a socket during a request, ms. */
export const SILENCE_MS = 120_000;
/** Longest silence of a socket between two requests, ms. */
const KEEP_ALIVE_MS = 5_000;
/**
 * Interval at which the server looks for requests that exceeded their time, ms. Node's default is 30 s, three times
 * the default time for the headers of a request.
 */
const REQUEST_CHECK_MS = 1_000;
/** Interval at which this process connects to its own port to measure how long a connection waits, ms. */
const SELF_CHECK_MS = 500;
/** A socket is closed after this many requests, so that clients also find other replicas. */
const MAX_REQUESTS = 10_000;

const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process listens there already",
  EACCES: "this user may not open it",
};

function listen(server: Server, host: string, port: number, shared: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", ({ code = "unknown fault" }: NodeJS.ErrnoException) => {
      const why = LISTEN_ERRORS[code] ?? code;
      reject(new Failure("port", `cannot listen on port ${port} of ${host}: ${why}`));
    });
    // Several processes may share the port where the system and Node (from 22.12) allow it; elsewhere the second
    // process is refused. Without sharing, the port belongs to this process alone.
    server.listen({ host, port, reusePort: shared, exclusive: !shared } as ListenOptions, resolve);
  });
}

/**
 * Measures, by connecting to its own port, how long a connection waits until this process accepts it. Returns a
 * function that returns the newest wait, ms. libuv accepts one connection from the system's queue per turn of its loop
 * (since 1.45: libuv/libuv#3696). On a busy machine the queue fills up and clients wait in it until they give up,
 * although no single turn is slow.
 */
function measureAcceptWait(server: Server): () => number {
  const { address, port } = server.address() as AddressInfo;
  const host = address === "::" ? "::1" : address === "0.0.0.0" ? "127.0.0.1" : address;
  let runningCheck: { socket: Socket; startedAt: number } | null = null;
  let lastWaitMs = 0;
  const timer = setInterval(() => {
    if (runningCheck) return;
    const socket = connect({ port, host }).unref();
    const thisCheck = { socket, startedAt: systemClock.monotonic() };
    runningCheck = thisCheck;
    socket.on("error", () => {});
    // The connection was refused, or dropped because all sockets are in use. That is no measurement of the queue.
    socket.once("close", () => {
      if (runningCheck === thisCheck) runningCheck = null;
    });
  }, SELF_CHECK_MS).unref();
  server.on("connection", ({ remotePort }: Socket) => {
    if (!runningCheck || remotePort !== runningCheck.socket.localPort) return;
    lastWaitMs = systemClock.monotonic() - runningCheck.startedAt;
    runningCheck.socket.destroy();
    runningCheck = null;
  });
  server.once("close", () => {
    clearInterval(timer);
    runningCheck?.socket.destroy();
  });
  return () => Math.max(lastWaitMs, runningCheck ? systemClock.monotonic() - runningCheck.startedAt : 0);
}

/** Starts to listen with the app, with limits on its sockets. @throws Failure `port` */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { app, port, host, shared, graceMs, proxies = [], metrics } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const server = createServer({
    // Node refuses a headers timeout that is longer than the timeout of the whole request.
    headersTimeout: Math.min(limits.headers_timeout_s, limits.request_timeout_s) * 1000,
    requestTimeout: limits.request_timeout_s * 1000,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: REQUEST_CHECK_MS,
  });
  server.maxRequestsPerSocket = MAX_REQUESTS;
  server.timeout = SILENCE_MS;
  const getSocketShare = guardSockets(
    server,
    toNodeHandler(app),
    limits,
    (peer) => socketKeyOf(peer, proxies),
    metrics,
  );
  options.overload?.setSocketShare(getSocketShare);
  await listen(server, host, port, shared === true);
  // When several processes share the port, another process may accept the connection that measures the wait.
  if (!shared) options.overload?.setAcceptWait(measureAcceptWait(server));
  const boundPort = (server.address() as AddressInfo).port;
  const urlHost = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${urlHost}:${boundPort}`,
    port: boundPort,
    close: () =>
      new Promise((resolve) => {
        const cutTimer = setTimeout(() => server.closeAllConnections(), graceMs ?? 10_000);
        server.close(() => {
          clearTimeout(cutTimer);
          resolve();
        });
        server.closeIdleConnections();
      }),
  };
}
