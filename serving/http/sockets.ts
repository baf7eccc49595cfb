import type { RequestListener, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "../../infra/config.ts";
import { Places } from "../../infra/shares.ts";
import type { Metrics } from "../../infra/telemetry.ts";

/** Least number of measurements within `slow_after_s`. */
const MIN_MEASUREMENTS = 10;
/** Longest pause between two measurements, ms. */
const MAX_PAUSE_MS = 1_000;

/**
 * Largest number of unanswered requests of one socket; pipelined answers are buffered until the client reads the first.
 */
const MAX_UNANSWERED = 32;

const TIMEOUT_RESPONSE = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/** State of one socket at the last measurement. */
interface SocketState {
  /** Bytes that the system accepted for sending. */
  drainedBytes: number;
  /** Bytes that were received. */
  receivedBytes: number;
  /** Bytes that the socket is ahead of the slowest rate when sending; below zero it is too slow. */
  sendingCredit: number;
  /** Bytes that the socket is ahead of the slowest rate when receiving; below zero it is too slow. */
  receivingCredit: number;
  /** The newest answer; the body of its request may still be arriving. */
  newestAnswer: ServerResponse | null;
  /** Number of requests whose answers are not completely sent. */
  unansweredCount: number;
}

/**
 * Bounds the cost of sockets, in addition to the server's own timeouts. A connection beyond a client's share is
 * closed. A client that reads slower than the slowest rate while bytes wait for it is reset, which also frees the
 * system's buffers. A body that arrives slower than that gets a 408. A socket with too many pipelined requests is
 * closed. A late measurement is treated as if it came in time, so a stall of this process does not make a client
 * count as slow.
 * @param server must have no other listener to requests
 * @param handle answers a request
 * @param clientOf returns the key of the client at a peer's address; null for a trusted proxy
 * @returns a function that returns the share of sockets in use, from 0 to 1
 */
export function guardSockets(
  server: Server,
  handle: RequestListener,
  limits: Pick<Limits, "sockets" | "sockets_per_client" | "min_bytes_per_s" | "slow_after_s">,
  clientOf: (peer: string | undefined) => string | null,
  metrics?: Pick<Metrics, "count">,
): () => number {
  const watched = new Map<Socket, SocketState>();
  const places = new Places({ name: "sockets", size: limits.sockets, most: { client: limits.sockets_per_client } });
  const pauseMs = Math.min(MAX_PAUSE_MS, (limits.slow_after_s * 1000) / MIN_MEASUREMENTS);
  // Bytes that a socket has to send or receive from one measurement to the next.
  const dueBytes = (limits.min_bytes_per_s * pauseMs) / 1000;
  const graceBytes = limits.min_bytes_per_s * limits.slow_after_s;
  const countRefused = (bound: "client" | "total"): void =>
    metrics?.count("touchstone_http_sockets_refused_total", { bound });
  const countCut = (reason: "slow_reader" | "slow_writer" | "pipelined"): void =>
    metrics?.count("touchstone_http_sockets_cut_total", { reason });

  /** Measures every socket, and closes those that are too slow. */
  const cutSlowSockets = (): void => {
    for (const [socket, state] of watched) {
      const waitingBytes = socket.writableLength;
      const drained = socket.bytesWritten - waitingBytes;
      state.sendingCredit =
        waitingBytes > 0
          ? Math.min(graceBytes, state.sendingCredit + drained - state.drainedBytes - dueBytes)
          : graceBytes;
      const isReceiving = state.newestAnswer !== null && !state.newestAnswer.req.complete;
      state.receivingCredit = isReceiving
        ? Math.min(graceBytes, state.receivingCredit + socket.bytesRead - state.receivedBytes - dueBytes)
        : graceBytes;
      state.drainedBytes = drained;
      state.receivedBytes = socket.bytesRead;
      // Node counts a write as sent only once all of it is sent, so part of the waiting bytes may be sent already.
      const reason =
        state.sendingCredit + waitingBytes < 0 ? "slow_reader" : state.receivingCredit < 0 ? "slow_writer" : null;
      if (reason === null) continue;
      countCut(reason);
      if (reason === "slow_writer" && !state.newestAnswer?.headersSent) socket.write(TIMEOUT_RESPONSE, () => undefined);
      if (reason === "slow_writer") socket.destroy();
      else socket.resetAndDestroy();
    }
  };

  server.maxConnections = limits.sockets;
  server.on("drop", () => countRefused("total"));
  server.on("connection", (socket: Socket) => {
    const client = clientOf(socket.remoteAddress);
    const place = places.tryTake(client === null ? {} : { client });
    if (!place) {
      countRefused("client");
      socket.destroy();
      return;
    }
    watched.set(socket, {
      drainedBytes: 0,
      receivedBytes: 0,
      sendingCredit: graceBytes,
      receivingCredit: graceBytes,
      newestAnswer: null,
      unansweredCount: 0,
    });
    socket.once("close", () => {
      watched.delete(socket);
      place.leave();
    });
  });
  server.on("request", (request, response) => {
    const state = watched.get(request.socket);
    // Requests that were parsed before the socket was closed may still arrive here.
    if (!state || request.socket.destroyed) return;
    if (state.unansweredCount >= MAX_UNANSWERED) {
      countCut("pipelined");
      request.socket.destroy();
      return;
    }
    state.newestAnswer = response;
    state.unansweredCount++;
    response.on("close", () => state.unansweredCount--);
    handle(request, response);
  });
  const timer = setInterval(cutSlowSockets, pauseMs).unref();
  server.once("close", () => clearInterval(timer));
  return () => watched.size / limits.sockets;
}
