import { createHash } from "node:crypto";
import { BadFrame, streamFrame } from "../../infra/zstd.ts";

const LF = 0x0a;

/** Cuts chunks into lines, counts them and notes the longest, the one that is not ended yet included. */
export class Lines {
  #rest: Buffer[] = [];
  #held = 0;
  count = 0;
  longest = 0;

  /**
   * @param maxLine longer ones are counted and not handed out: no stranger's line fills the memory
   * @param onLine told of each line, without its newline; may not keep it, since its memory is used again
   */
  constructor(
    private readonly maxLine: number,
    private readonly onLine?: (line: Buffer) => void,
  ) {}

  add(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      this.#end(chunk.subarray(from, at));
      from = at + 1;
    }
    this.#held += chunk.length - from;
    this.longest = Math.max(this.longest, this.#held);
    // What is too long already is not held any further, and a copy is held since the chunk's memory is used again.
    if (this.onLine && this.#held > 0 && this.#held <= this.maxLine) this.#rest.push(Buffer.from(chunk.subarray(from)));
  }

  /** Does it end behind a newline? */
  get isWhole(): boolean {
    return this.#held === 0;
  }

  #end(piece: Buffer): void {
    const length = this.#held + piece.length;
    this.count++;
    this.longest = Math.max(this.longest, length);
    if (this.onLine && length <= this.maxLine)
      this.onLine(this.#held > 0 ? Buffer.concat([...this.#rest, piece]) : piece);
    this.#rest = [];
    this.#held = 0;
  }
}

/** What a text of lines is: bytes, lines, the longest of them without its newline, and the hash of all. */
export interface TextOfLines {
  size: number;
  lines: number;
  longest: number;
  sha256: string;
}

/** What a frame unpacks to; or, where it is none or longer than it may be, why. */
export type FrameFacts = TextOfLines | { not: string };

/** Callbacks while a frame is unpacked, before anything is proven. Do not keep what they get: its memory is reused. */
export interface Told {
  onChunk?: (chunk: Buffer) => void;
  /** Each line of at most `maxLine` bytes, without its newline. */
  onLine?: (line: Buffer) => void;
  maxLine?: number;
}

/** Read a stranger's frame through, of at most `maxBytes` unpacked, in bounded memory. @throws what `told` throws */
export async function factsOfFrame(
  packed: Uint8Array,
  maxBytes: number,
  { onChunk, onLine, maxLine = 0 }: Told = {},
): Promise<FrameFacts> {
  const hash = createHash("sha256");
  const lines = new Lines(maxLine, onLine);
  try {
    const size = await streamFrame(packed, maxBytes, (chunk) => {
      hash.update(chunk);
      lines.add(chunk);
      onChunk?.(chunk);
    });
    return { size, lines: lines.count, longest: lines.longest, sha256: hash.digest("hex") };
  } catch (error) {
    if (error instanceof BadFrame) return { not: error.message };
    throw error;
  }
}

/** Text that names size, lines and hash; two of them are equal exactly where the unpacked texts are. */
export const described = (text: Omit<TextOfLines, "longest"> | { not: string }): string =>
  "not" in text ? text.not : `${text.size} bytes in ${text.lines} lines of ${text.sha256}`;
