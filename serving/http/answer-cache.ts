/** A signed answer in the cache. */
export interface CachedAnswer {
  /** JSON text as it is sent. It is signed once, so all clients get the same bytes until it expires. */
  bytes: Buffer;
  etag: string;
  /** Capability id of the endpoint that the answer is about, when the record has it. */
  cap?: string | undefined;
  /** When the answer was made, ms of the monotonic clock. */
  madeAt: number;
}

export interface CacheBounds {
  /** How long an answer is valid, ms. */
  ttlMs: number;
  maxEntries: number;
  /** Largest number of bytes of all answers plus characters of all keys. */
  maxBytes: number;
}

export const CHECK_CACHE_BOUNDS: CacheBounds = { ttlMs: 60_000, maxEntries: 50_000, maxBytes: 64 * 1024 * 1024 };

/**
 * Caches answers by query, with bounds on their age, number and size; the oldest is evicted first. All
 * answers have the same lifetime, so the order of insertion is the order of expiry. Each insertion also evicts
 * expired answers, since clients ask for ever new urls and would otherwise keep the cache full.
 */
export class AnswerCache<A extends CachedAnswer = CachedAnswer> {
  readonly #answers = new Map<string, A>();
  #usedBytes = 0;

  constructor(
    private readonly bounds: CacheBounds,
    private readonly now: () => number,
  ) {}

  /** Returns an answer that has not expired. */
  get(key: string): A | undefined {
    const answer = this.#answers.get(key);
    if (!answer) return undefined;
    if (this.now() - answer.madeAt < this.bounds.ttlMs) return answer;
    this.#drop(key, answer);
    return undefined;
  }

  set(key: string, answer: A): void {
    const existing = this.#answers.get(key);
    if (existing) this.#drop(key, existing);
    this.#answers.set(key, answer);
    this.#usedBytes += key.length + answer.bytes.length;
    for (const [oldestKey, oldestAnswer] of this.#answers) {
      const { ttlMs, maxEntries, maxBytes } = this.bounds;
      const isFull = this.#answers.size > maxEntries || this.#usedBytes > maxBytes;
      if (!isFull && this.now() - oldestAnswer.madeAt < ttlMs) return;
      this.#drop(oldestKey, oldestAnswer);
    }
  }

  get size(): number {
    return this.#answers.size;
  }

  #drop(key: string, answer: A): void {
    this.#answers.delete(key);
    this.#usedBytes -= key.length + answer.bytes.length;
  }
}
