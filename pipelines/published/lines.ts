import { createHash } from "node:crypto";
import { BadFrame, streamFrame } from "../../infra/zstd.ts";

const LF = 0x0a;

/** Splits chunks into lines, counts them and records the length of the longest, including an unfinished last line. */
export class LineSplitter {
  #unfinishedPieces: Buffer[] = [];
  #unfinishedBytes = 0;
  count = 0;
  longest = 0;

  /**
   * @param maxLine longest line that is passed to `onLine`, bytes; longer ones are only counted, so that no line
   * fills the memory
   * @param onLine called with each line, without its newline; must not keep the buffer, which is reused
   */
  constructor(
    private readonly maxLine: number,
    private readonly onLine?: (line: Buffer) => void,
  ) {}

  add(chunk: Buffer): void {
    let lineStart = 0;
    for (let newlineAt = chunk.indexOf(LF); newlineAt >= 0; newlineAt = chunk.indexOf(LF, lineStart)) {
      this.#endLine(chunk.subarray(lineStart, newlineAt));
      lineStart = newlineAt + 1;
    }
    this.#unfinishedBytes += chunk.length - lineStart;
    this.longest = Math.max(this.longest, this.#unfinishedBytes);
    // A line that is too long already is not kept. The piece is copied, since the chunk's memory is reused.
    if (this.onLine && this.#unfinishedBytes > 0 && this.#unfinishedBytes <= this.maxLine)
      this.#unfinishedPieces.push(Buffer.from(chunk.subarray(lineStart)));
  }

  /** Returns whether the text so far ends with a newline. */
  get isWhole(): boolean {
    return this.#unfinishedBytes === 0;
  }

  #endLine(piece: Buffer): void {
    const length = this.#unfinishedBytes + piece.length;
    this.count++;
    this.longest = Math.max(this.longest, length);
    if (this.onLine && length <= this.maxLine)
      this.onLine(this.#unfinishedBytes > 0 ? Buffer.concat([...this.#unfinishedPieces, piece]) : piece);
    this.#unfinishedPieces = [];
    this.#unfinishedBytes = 0;
  }
}

/**
 * Facts of a text: bytes, lines, the length of the longest line without its newline, and the hash of the whole text.
 */
export interface TextFacts {
  size: number;
  lines: number;
  longest: number;
  sha256: string;
}

/** The facts of the text in a zstd frame; `not` is the reason when the frame is damaged or too long. */
export type FrameFacts = TextFacts | { not: string };

/**
 * Callbacks while a frame is unpacked, before anything is proven. They must not keep a buffer: its memory is reused.
 */
export interface FrameCallbacks {
  onChunk?: (chunk: Buffer) => void;
  /** Each line of at most `maxLine` bytes, without its newline. */
  onLine?: (line: Buffer) => void;
  maxLine?: number;
}

/** Unpacks an untrusted zstd frame into at most `maxBytes`, in bounded memory. @throws what the callbacks throw */
export async function scanFrame(
  packed: Uint8Array,
  maxBytes: number,
  { onChunk, onLine, maxLine = 0 }: FrameCallbacks = {},
): Promise<FrameFacts> {
  const hash = createHash("sha256");
  const lines = new LineSplitter(maxLine, onLine);
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

/** Describes a text by size, lines and hash. Two descriptions are equal exactly when the texts are equal. */
export const describeText = (text: Omit<TextFacts, "longest"> | { not: string }): string =>
  "not" in text ? text.not : `${text.size} bytes in ${text.lines} lines of ${text.sha256}`;
