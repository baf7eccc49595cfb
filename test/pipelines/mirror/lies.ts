import { gunzipSync, gzipSync } from "node:zlib";
import { Oversized, SourceDown } from "../../../pipelines/published/errors.ts";
import type { Source } from "../../../pipelines/published/source.ts";

/** What a source can do to one object, as its contract lets it be seen. */
export const LIES = {
  "endless data": (key) => {
    throw new Oversized(key, 1);
  },
  truncated: (_, whole) => whole.subarray(0, -1),
  tampered: (_, whole, at) => {
    const flipped = Buffer.from(whole);
    const bit = Math.floor(at * whole.length * 8);
    flipped[bit >> 3] = flipped[bit >> 3]! ^ (1 << (bit & 7));
    return flipped;
  },
  stalled: (key) => {
    throw new SourceDown("liar", key, "body timeout (1 tries)");
  },
  "5xx": (key) => {
    throw new SourceDown("liar", key, "it answered 503 (1 tries)");
  },
  "wrong length": (_, whole) => Buffer.concat([whole, Buffer.from("and more")]),
  "wrong encoding": (key, whole) => (key.startsWith("tile/entries/") ? gunzipSync(whole) : gzipSync(whole)),
  missing: () => null,
} satisfies Record<string, (key: string, whole: Buffer, at: number) => Uint8Array | null>;
export type Lie = keyof typeof LIES;

/** A source that lies about one object and tells the truth about all others. */
export class LyingSource implements Source {
  readonly name = "liar";

  /** @param at where a bit is flipped, as a part of the object */
  constructor(
    private readonly honest: Source,
    private readonly key: string,
    private readonly lie: Lie,
    private readonly at: number,
  ) {}

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    if (key !== this.key) return this.honest.get(key, maxBytes);
    const whole = await this.honest.get(key, Number.MAX_SAFE_INTEGER);
    if (!whole) throw new Error(`there is no ${key} to lie about`);
    const told = LIES[this.lie](key, Buffer.from(whole), this.at);
    if (told && told.length > maxBytes) throw new Oversized(key, maxBytes);
    return told;
  }

  async close(): Promise<void> {}
}
