/** A text on its way into one zstd frame. */
export class FrameParts {
  /** @param level of zstd */
  constructor(level: number);
  /** The next piece. It was read when this returns. */
  add(piece: Uint8Array): void;
  /** Once, at the end. @returns the frame in parts, each in memory that holds nothing else */
  end(): Uint8Array[];
}
