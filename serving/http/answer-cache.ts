/** Signed bytes of an answer, kept as long as it stands. */
export interface CachedAnswer {
  /** JSON text as it is sent: signed once, so everybody who asks within the minute gets the same bytes. */
  bytes: Buffer;
  etag: string;
  /** The endpoint that it speaks of, when it is one of the record. */
  cap?: string | undefined;
  /** Steady ms when it was made. */
  madeAt: number;
}

export interface CacheBounds {
  /** How long an answer stands, ms. */
  ttlMs: number;
  maxEntries: number;
  /** Bytes of all answers, and characters of their keys, together. */
  maxBytes: number;
}

export const CHECK_CACHE: CacheBounds = { ttlMs: 60_000, maxEntries: 50_000, maxBytes: 64 * 1024 * 1024 };

/**
 * Answers by normalised query, bounded by time, number and size; the one made longest ago goes first. All live equally
 * long, so the order of insertion is the order of expiry. What has expired goes with the next that comes: strangers ask
 * for ever new addresses, and their answers would else fill the cache to its last byte and stay.
 */
export class AnswerCache<A extends CachedAnswer = CachedAnswer> {
  readonly #answers = new Map<string, A>();
  #bytes = 0;

  constructor(
    private readonly bounds: CacheBounds,
    private readonly now: () => number,
  ) {}

  /** The answer, unless its time is over. */
  get(key: string): A | undefined {
    const answer = this.#answers.get(key);
    if (!answer) return undefined;
    if (this.now() - answer.madeAt < this.bounds.ttlMs) return answer;
    this.#drop(key, answer);
    return undefined;
  }

  set(key: string, answer: A): void {
    const held = this.#answers.get(key);
    if (held) this.#drop(key, held);
    this.#answers.set(key, answer);
    this.#bytes += key.length + answer.bytes.length;
    for (const [oldest, dropped] of this.#answers) {
      const { ttlMs, maxEntries, maxBytes } = this.bounds;
      const isFull = this.#answers.size > maxEntries || this.#bytes > maxBytes;
      if (!isFull && this.now() - dropped.madeAt < ttlMs) return;
      this.#drop(oldest, dropped);
    }
  }

  get size(): number {
    return this.#answers.size;
  }

  #drop(key: string, answer: A): void {
    this.#answers.delete(key);
    this.#bytes -= key.length + answer.bytes.length;
  }
}
