import type { RequestListener, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "../../infra/config.ts";
import { Places } from "../../infra/shares.ts";
import type { Metrics } from "../../infra/telemetry.ts";

/** Looks within `slow_after_s`, and the longest pause between two of them, ms. */
const LOOKS = 10;
const MAX_PAUSE_MS = 1_000;

/** Requests of one socket that wait for their answers: those that are ready are held until the first is taken. */
const MAX_UNANSWERED = 32;

const TIMED_OUT = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/** One socket between two looks. */
interface Watched {
  /** Bytes that the system took from us, and that came, up to the last look. */
  drained: number;
  received: number;
  /** Bytes that it is ahead of the slowest rate in each direction; below zero it is too slow. */
  out: number;
  in: number;
  /** The newest answer: the body of its request may still be coming. */
  newest: ServerResponse | null;
  /** Requests that wait for their answers, or for these to be taken. */
  unanswered: number;
}

/**
 * Bounds what sockets cost, on top of the server's own timeouts: more than a client's share are refused as they come; a
 * reader that takes less than the slowest rate while bytes wait for it is reset, so that the system forgets them too; a
 * body that comes slower than that is a 408; one that pipelines many requests without taking their answers is cut. A
 * look counts as one pause however late it comes: when our own loop stood still nobody is slow for it.
 * @returns the share of all sockets that is taken, from 0 to 1
 * @param handle answers a request; a server of which this is the only listener to requests
 * @param clientOf key of the client behind a peer's address; null for a proxy, whose sockets are many clients'
 */
export function guardSockets(
  server: Server,
  handle: RequestListener,
  limits: Pick<Limits, "sockets" | "sockets_per_client" | "min_bytes_per_s" | "slow_after_s">,
  clientOf: (peer: string | undefined) => string | null,
  metrics?: Pick<Metrics, "count">,
): () => number {
  const watched = new Map<Socket, Watched>();
  const places = new Places({ name: "sockets", size: limits.sockets, most: { client: limits.sockets_per_client } });
  const pauseMs = Math.min(MAX_PAUSE_MS, (limits.slow_after_s * 1000) / LOOKS);
  const due = (limits.min_bytes_per_s * pauseMs) / 1000;
  const grace = limits.min_bytes_per_s * limits.slow_after_s;
  const refused = (bound: "client" | "total"): void =>
    metrics?.count("touchstone_http_sockets_refused_total", { bound });
  const cut = (reason: "slow_reader" | "slow_writer" | "pipelined"): void =>
    metrics?.count("touchstone_http_sockets_cut_total", { reason });

  const look = (): void => {
    for (const [socket, one] of watched) {
      const waiting = socket.writableLength;
      const drained = socket.bytesWritten - waiting;
      one.out = waiting > 0 ? Math.min(grace, one.out + drained - one.drained - due) : grace;
      const coming = one.newest !== null && !one.newest.req.complete;
      one.in = coming ? Math.min(grace, one.in + socket.bytesRead - one.received - due) : grace;
      one.drained = drained;
      one.received = socket.bytesRead;
      // Of what waits a part may have gone already: it is counted only once all of a write has.
      const reason = one.out + waiting < 0 ? "slow_reader" : one.in < 0 ? "slow_writer" : null;
      if (reason === null) continue;
      cut(reason);
      if (reason === "slow_writer" && !one.newest?.headersSent) socket.write(TIMED_OUT, () => undefined);
      if (reason === "slow_writer") socket.destroy();
      else socket.resetAndDestroy();
    }
  };

  server.maxConnections = limits.sockets;
  server.on("drop", () => refused("total"));
  server.on("connection", (socket: Socket) => {
    const client = clientOf(socket.remoteAddress);
    const place = places.tryTake(client === null ? {} : { client });
    if (!place) {
      refused("client");
      socket.destroy();
      return;
    }
    watched.set(socket, { drained: 0, received: 0, out: grace, in: grace, newest: null, unanswered: 0 });
    socket.once("close", () => {
      watched.delete(socket);
      place.leave();
    });
  });
  server.on("request", (request, response) => {
    const one = watched.get(request.socket);
    // What was read with the bytes that had it cut still arrives here.
    if (!one || request.socket.destroyed) return;
    if (one.unanswered >= MAX_UNANSWERED) {
      cut("pipelined");
      request.socket.destroy();
      return;
    }
    one.newest = response;
    one.unanswered++;
    response.on("close", () => one.unanswered--);
    handle(request, response);
  });
  const looking = setInterval(look, pauseMs).unref();
  server.once("close", () => clearInterval(looking));
  return () => watched.size / limits.sockets;
}
