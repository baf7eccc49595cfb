import { createHash } from "node:crypto";
import { once } from "node:events";
import { CompressStream } from "zstd-napi";
import { canonicalText } from "../../infra/canonical.ts";

/** A file that is ready to be put: one zstd frame, and what it unpacks to. */
export interface Packed {
  bytes: Buffer;
  rows: number;
  unpackedSha256: string;
  unpackedBytes: number;
}

/** Lines on their way into one zstd frame: RFC 8785, each with a newline. Only packed bytes are held in memory. */
export class PackedLines {
  readonly #hash = createHash("sha256");
  readonly #frame = new CompressStream({ compressionLevel: 3 });
  readonly #packed: Buffer[] = [];
  readonly #ended: Promise<unknown>;
  #rows = 0;
  #bytes = 0;

  constructor() {
    this.#frame.on("data", (chunk: Buffer) => this.#packed.push(chunk));
    this.#ended = once(this.#frame, "end");
    // Awaited in `end`; until then an error is not an unhandled one.
    this.#ended.catch(() => undefined);
  }

  async add(lines: readonly unknown[]): Promise<void> {
    if (lines.length === 0) return;
    const text = Buffer.from(lines.map((line) => `${canonicalText(line)}\n`).join(""));
    this.#hash.update(text);
    this.#rows += lines.length;
    this.#bytes += text.length;
    if (!this.#frame.write(text)) await once(this.#frame, "drain");
  }

  async end(): Promise<Packed> {
    this.#frame.end();
    await this.#ended;
    return {
      bytes: Buffer.concat(this.#packed),
      rows: this.#rows,
      unpackedSha256: this.#hash.digest("hex"),
      unpackedBytes: this.#bytes,
    };
  }
}
