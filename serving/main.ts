import { createServer, type Server } from "node:http";
import type { AddressInfo, ListenOptions } from "node:net";
import type { H3 } from "h3";
import { toNodeHandler } from "h3/node";

export interface ServeOptions {
  app: H3;
  /** 0 picks a free one. */
  port: number;
  host: string;
  /** Other processes may listen there too, each getting a share of the connections. */
  shared?: boolean;
  /** Sockets at once (default 10,000); more are refused at once instead of slowing everybody. */
  maxConnections?: number;
  /** How long answers under way may take once closing began, ms (default 10,000). */
  graceMs?: number;
}

export interface Serving {
  url: string;
  port: number;
  /** Stop listening, let answers under way end, cut what lasts longer than the grace. */
  close(): Promise<void>;
}

/** Longest wait for request headers and for a whole request, and longest silence of a client that takes its answer. */
const HEADERS_MS = 10_000;
const REQUEST_MS = 30_000;
const SILENCE_MS = 120_000;

/** The port is taken, or may not be used. The message names it. */
export class CannotListen extends Error {
  constructor(host: string, port: number, code: string | undefined) {
    const why =
      code === "EADDRINUSE"
        ? "another process listens there already"
        : code === "EACCES"
          ? "this user may not open it"
          : (code ?? "unknown fault");
    super(`cannot listen on port ${port} of ${host}: ${why}`);
    this.name = "CannotListen";
  }
}

function listen(server: Server, host: string, port: number, shared: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(new CannotListen(host, port, error.code)));
    // Several processes may share the port where the system and Node (from 22.12) can; elsewhere the second is refused.
    server.listen({ host, port, reusePort: shared } as ListenOptions, resolve);
  });
}

/** Listen with the app. @throws CannotListen */
export async function serve({ app, port, host, shared, maxConnections, graceMs }: ServeOptions): Promise<Serving> {
  const server = createServer({ headersTimeout: HEADERS_MS, requestTimeout: REQUEST_MS }, toNodeHandler(app));
  server.maxConnections = maxConnections ?? 10_000;
  server.timeout = SILENCE_MS;
  await listen(server, host, port, shared === true);
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
