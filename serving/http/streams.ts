import type { Limits } from "../../infra/config.ts";
import { Places } from "../../infra/shares.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { Limiter } from "./limits.ts";
import { Problem } from "./problem.ts";

type StreamLimits = Pick<Limits, "streams" | "streams_per_client" | "stream_mb_per_hour">;

/** Value of Retry-After when all places are taken, seconds. */
const RETRY_S = 5;

/** Size of one write. The progress of a slow reader is measured in whole writes. */
const WRITE_BYTES = 64 * 1024;

/**
 * Bounds long answers, which are read while they are sent: the feed, the index, large objects. Their clients decide how
 * long they hold memory, so their number is bounded in total and per client, and the bytes per client and hour.
 */
export class Streams {
  readonly #byteLimiter: Limiter;
  readonly #places: Places;

  constructor(
    limits: StreamLimits,
    now: () => number,
    private readonly metrics?: Pick<Metrics, "count" | "gauge">,
  ) {
    const most = { client: limits.streams_per_client };
    this.#places = new Places({ name: "streams", size: limits.streams, most });
    const quota = limits.stream_mb_per_hour * 1024 ** 2;
    this.#byteLimiter = new Limiter({ name: "bytes", quota, windowS: 3600 }, now);
  }

  /**
   * Refuses a client that has used up its bytes of this hour. Call it before reading the object. @throws Problem
   * too_many_requests
   */
  admit(client: string): void {
    const decision = this.#byteLimiter.take(client, 0);
    if (decision.ok) return;
    this.#countRefusal("bytes");
    const detail = `at most ${this.#byteLimiter.limit.quota} bytes of objects and streams in an hour`;
    throw new Problem("too_many_requests", detail, { headers: this.#byteLimiter.headers(decision) });
  }

  /** Counts bytes that are sent to a client, even if the client has none left. */
  charge(client: string, bytes: number): void {
    this.#byteLimiter.charge(client, bytes);
  }

  /**
   * Returns a body that reads `chunks` as its client reads the body, and counts the bytes. The body holds a place
   * until it ends, fails or is cancelled.
   * @throws Problem too_many_requests at this client's limit, unavailable at the total limit; `chunks` is then not
   * read
   */
  stream(client: string, chunks: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
    this.admit(client);
    const releasePlace = this.#takePlace(client);
    const source = chunks[Symbol.asyncIterator]();
    let buffered: Uint8Array = new Uint8Array();
    const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
      while (buffered.length === 0) {
        const next = await source.next();
        if (next.done) {
          releasePlace();
          return controller.close();
        }
        buffered = next.value;
      }
      const piece = buffered.subarray(0, WRITE_BYTES);
      buffered = buffered.subarray(WRITE_BYTES);
      this.charge(client, piece.length);
      controller.enqueue(piece);
    };
    return new ReadableStream<Uint8Array>(
      {
        pull: (controller) =>
          pull(controller).catch((error: unknown) => {
            releasePlace();
            throw error;
          }),
        async cancel() {
          releasePlace();
          await source.return?.();
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** Takes a place. @returns a function that releases it @throws Problem too_many_requests, unavailable */
  #takePlace(client: string): () => void {
    const place = this.#places.tryTake({ client });
    if (!place) {
      const heldCount = this.#places.heldCountOf({ client });
      const headers = { "retry-after": String(RETRY_S) };
      this.#countRefusal(heldCount > 0 ? "client" : "total");
      if (heldCount === 0) throw new Problem("unavailable", "too many long answers are under way", { headers });
      throw new Problem("too_many_requests", `${heldCount} long answers of one client at once are its share now`, {
        headers,
      });
    }
    this.#updateGauge();
    return () => {
      place.leave();
      this.#updateGauge();
    };
  }

  #updateGauge(): void {
    this.metrics?.gauge("touchstone_http_streams", this.#places.takenCount);
  }

  #countRefusal(bound: "bytes" | "client" | "total"): void {
    this.metrics?.count("touchstone_http_streams_refused_total", { bound });
  }
}
