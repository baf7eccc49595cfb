import { createHash } from "node:crypto";
import { once } from "node:events";
import { CompressStream, compress } from "zstd-napi";
import { canonicalText } from "../../infra/canonical.ts";

/** A file that is ready to be put: one zstd frame, and what it unpacks to. */
export interface Packed {
  bytes: Buffer;
  rows: number;
  unpackedSha256: string;
  unpackedBytes: number;
}

const LEVEL = { compressionLevel: 3 };
/** Up to here a file is packed in one call; a stream costs some milliseconds however little goes through it. */
const AT_ONCE_BYTES = 1024 * 1024;

/** Lines on their way into one zstd frame: RFC 8785, each with a newline. Of a large file only packed bytes are held. */
export class PackedLines {
  readonly #hash = createHash("sha256");
  readonly #held: Buffer[] = [];
  #stream: PackingStream | null = null;
  #rows = 0;
  #bytes = 0;

  async add(lines: readonly unknown[]): Promise<void> {
    if (lines.length === 0) return;
    const text = Buffer.from(lines.map((line) => `${canonicalText(line)}\n`).join(""));
    this.#hash.update(text);
    this.#rows += lines.length;
    this.#bytes += text.length;
    this.#held.push(text);
    if (this.#bytes <= AT_ONCE_BYTES) return;
    this.#stream ??= new PackingStream();
    for (const held of this.#held.splice(0)) await this.#stream.write(held);
  }

  async end(): Promise<Packed> {
    return {
      bytes: this.#stream ? await this.#stream.end() : compress(Buffer.concat(this.#held), LEVEL),
      rows: this.#rows,
      unpackedSha256: this.#hash.digest("hex"),
      unpackedBytes: this.#bytes,
    };
  }
}

class PackingStream {
  readonly #frame = new CompressStream(LEVEL);
  readonly #packed: Buffer[] = [];
  readonly #ended: Promise<unknown>;

  constructor() {
    this.#frame.on("data", (chunk: Buffer) => this.#packed.push(chunk));
    this.#ended = once(this.#frame, "end");
    // Awaited in `end`; until then an error is not an unhandled one.
    this.#ended.catch(() => undefined);
  }

  async write(text: Buffer): Promise<void> {
    if (!this.#frame.write(text)) await once(this.#frame, "drain");
  }

  async end(): Promise<Buffer> {
    this.#frame.end();
    await this.#ended;
    return Buffer.concat(this.#packed);
  }
}
