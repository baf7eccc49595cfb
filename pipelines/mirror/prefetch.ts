import { Oversized } from "./errors.ts";
import type { Sink } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";

/** Objects on their way at once: each waits for a round trip and for hardly anything else. */
export const PREFETCH_LANES = 32;
/** Longest object that is fetched before it is asked for: shards and bundles have some ten kilobytes. */
export const PREFETCH_OBJECT_BYTES = 1024 * 1024;
/** All that is here or on its way, each at its longest; what was looked at may be above it. */
export const PREFETCH_BYTES = 96 * 1024 * 1024;
/** Items that are wished for before their turn. */
const AHEAD = 2 * PREFETCH_LANES;

/** An object that will be asked for soon. */
export interface Wish {
  key: string;
  maxBytes: number;
}

interface Begun {
  /** Undefined: not fetched, for whatever reason. */
  bytes: Promise<Uint8Array | undefined>;
  /** Of memory, that may still be on their way. */
  size: number;
}

/**
 * A source of which small objects are fetched before they are asked for, many at once, while whoever asks is busy with
 * others: a source that is far away costs a round trip for each. It changes when an object is fetched and nothing else:
 * what did not come early, for whatever reason, is asked for in its turn as if nobody had tried. Nothing here is proven.
 * A source that is not `distant` is only handed on.
 */
export class Prefetch implements Source {
  readonly name: string;
  readonly #wishes = new Map<string, number>();
  readonly #begun = new Map<string, Begun>();
  readonly #running = new Set<Promise<unknown>>();
  #bytes = 0;
  #stopped = false;

  /** @param has is the object here already, from an earlier run? */
  constructor(
    private readonly source: Source,
    private readonly has: (key: string) => Promise<boolean>,
  ) {
    this.name = source.name;
  }

  /** Is anything fetched early? */
  get distant(): boolean {
    return this.source.distant === true && !this.#stopped;
  }

  /** Fetch these as soon as there is room, in this order. */
  want<T>(items: Iterable<T>, wishOf: (item: T) => Wish | null): void {
    if (!this.distant) return;
    for (const item of items) {
      const wish = wishOf(item);
      if (wish && !this.#begun.has(wish.key)) this.#wishes.set(wish.key, wish.maxBytes);
    }
    this.#fill();
  }

  /** The items in their order, each wished for before its turn. */
  *announced<T>(items: Iterable<T>, wishOf: (item: T) => Wish | null): Generator<T> {
    const next: T[] = [];
    for (const item of items) {
      next.push(item);
      this.want([item], wishOf);
      if (next.length > AHEAD) yield next.shift()!;
    }
    yield* next;
  }

  /** The object now, which stays here for whoever asks for it later; null where it did not come. Never rejects. */
  async look({ key, maxBytes }: Wish): Promise<Uint8Array | null> {
    if (this.distant && !this.#begun.has(key)) this.#begin(key, maxBytes);
    return (await this.#begun.get(key)?.bytes) ?? null;
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    this.#wishes.delete(key);
    const begun = this.#begun.get(key);
    if (begun) {
      this.#begun.delete(key);
      const bytes = await begun.bytes;
      this.#bytes -= begun.size;
      this.#fill();
      if (bytes && bytes.length <= maxBytes) return bytes;
    }
    return this.source.get(key, maxBytes);
  }

  into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    return fetchInto(this.source, key, maxBytes, sink);
  }

  /** Nothing is fetched early any more, and nothing is on its way when this resolves. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wishes.clear();
    await Promise.all(this.#running);
    this.#begun.clear();
  }

  async close(): Promise<void> {
    await this.stop();
    await this.source.close();
  }

  #fill(): void {
    for (const [key, maxBytes] of this.#wishes) {
      const size = Math.min(maxBytes, PREFETCH_OBJECT_BYTES);
      if (this.#running.size >= PREFETCH_LANES || this.#bytes + size > PREFETCH_BYTES) return;
      this.#begin(key, size);
    }
  }

  #begin(key: string, size: number): void {
    this.#wishes.delete(key);
    this.#bytes += size;
    const begun: Begun = { size, bytes: this.#fetched(key, size) };
    this.#begun.set(key, begun);
    const running = begun.bytes.then((bytes) => {
      this.#running.delete(running);
      // From here on it has the memory that it has.
      const left = bytes?.length ?? 0;
      this.#bytes -= begun.size - left;
      begun.size = left;
      this.#fill();
    });
    this.#running.add(running);
  }

  /** Never rejects: whoever needs the object will see for himself. */
  async #fetched(key: string, maxBytes: number): Promise<Uint8Array | undefined> {
    try {
      if (await this.has(key)) return undefined;
      return (await this.source.get(key, maxBytes)) ?? undefined;
    } catch (error) {
      // A source that does not answer is not pressed any further.
      if (!(error instanceof Oversized)) {
        this.#stopped = true;
        this.#wishes.clear();
      }
      return undefined;
    }
  }
}
