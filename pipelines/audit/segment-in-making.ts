import { createHash } from "node:crypto";
import { once } from "node:events";
import { CompressStream } from "zstd-napi";

const LF = Buffer.from("\n");

/** The feed lines of the segment that is being read: their hash, their length, and one frame of them as ours is packed. */
export class SegmentInMaking {
  readonly #hash = createHash("sha256");
  readonly #packed: Buffer[] = [];
  #frame: CompressStream | null = null;
  #bytes = 0;

  /** The entries of the next bundle: one write each, as the publisher packs them (4-publish/segment.ts). */
  async add(entries: readonly Buffer[]): Promise<void> {
    const lines = Buffer.concat(entries.flatMap((entry) => [entry, LF]));
    this.#hash.update(lines);
    this.#bytes += lines.length;
    const frame = this.#begun();
    if (!frame.write(lines)) await once(frame, "drain");
  }

  async end(): Promise<{ sha256: string; bytes: number; packed: Buffer }> {
    const frame = this.#begun();
    const ended = once(frame, "end");
    frame.end();
    await ended;
    return { sha256: this.#hash.digest("hex"), bytes: this.#bytes, packed: Buffer.concat(this.#packed) };
  }

  #begun(): CompressStream {
    if (this.#frame) return this.#frame;
    this.#frame = new CompressStream({ compressionLevel: 3 });
    this.#frame.on("data", (chunk: Buffer) => this.#packed.push(chunk));
    return this.#frame;
  }
}
