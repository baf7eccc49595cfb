/** Not one zstd frame, or longer than announced. */
export declare class BadFrame extends Error {}

/**
 * Unpacks a stranger's zstd bytes a block at a time, whatever they claim of their size: memory is the frame's window and
 * what `roomFor` gives. Exactly one frame is taken: a second one, or bytes behind it, would be read by some tools and not
 * by others.
 * @param roomFor memory for the next block @yields how many bytes came into it
 * @throws BadFrame past `maxBytes` unpacked bytes
 */
export declare function unpackBlocks(
  packed: Uint8Array,
  maxBytes: number,
  roomFor: () => Uint8Array,
): Generator<number>;
