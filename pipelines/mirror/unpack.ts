import { DecompressStream } from "zstd-napi";

/** A zstd frame unpacks one slice at a time, and a slice of this size to some 50 MB at the very most. */
const SLICE_BYTES = 1024;

/** Not a zstd frame, or longer than announced. */
export class BadFrame extends Error {
  constructor(says: string) {
    super(says);
    this.name = "BadFrame";
  }
}

/**
 * Unpack a stranger's zstd bytes slice by slice, whatever they claim of their size; nothing but `onChunk` keeps them.
 * @returns how many bytes came @throws BadFrame past `maxBytes` bytes
 */
export async function streamFrame(
  packed: Uint8Array,
  maxBytes: number,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  let size = 0;
  const frame = new DecompressStream();
  frame.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size <= maxBytes) onChunk(chunk);
  });
  const ended = new Promise<void>((resolve, reject) => frame.once("end", resolve).once("error", reject));
  // Looked at below; an error that comes while nobody waits must not end the process.
  ended.catch(() => undefined);
  for (let at = 0; at < packed.length && size <= maxBytes; at += SLICE_BYTES) {
    const slice = packed.subarray(at, at + SLICE_BYTES);
    const error = await new Promise<Error | null | undefined>((resolve) => frame.write(slice, resolve));
    if (error) throw new BadFrame(error.message);
  }
  if (size > maxBytes) {
    frame.destroy();
    throw new BadFrame(`it unpacks to more than ${maxBytes} bytes`);
  }
  frame.end();
  await ended.catch((error: Error) => {
    throw new BadFrame(error.message);
  });
  return size;
}

/** The same, in one piece. @throws BadFrame past `maxBytes` bytes */
export async function unpackFrame(packed: Uint8Array, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const size = await streamFrame(packed, maxBytes, (chunk) => chunks.push(chunk));
  return Buffer.concat(chunks, size);
}
