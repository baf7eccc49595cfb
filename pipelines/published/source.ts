import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { checkKey, isErrno } from "../../infra/store/store.ts";
import type { FetchObject } from "../../infra/tree/tiles.ts";
import { Oversized } from "./errors.ts";
import { MAX_BYTES } from "./limits.ts";
import type { Sink } from "./sink.ts";

/**
 * A place from which a mirror copies. Nothing that it returns is trusted: every byte is proven against the
 * checkpoint, and the checkpoint against keys that the mirror holds.
 */
export interface Source {
  /** The name or address that the operator gave, for messages. */
  readonly name: string;
  /**
   * Returns the object as it is stored (an entry bundle compressed), or null when there is none.
   * @throws Oversized past `maxBytes`, SourceDown when the source does not answer
   */
  get(key: string, maxBytes: number): Promise<Uint8Array | null>;
  /**
   * Reads an object into a sink. The transfer continues at the sink's position if the object still has the sink's
   * etag. When this throws, the sink keeps what it has received, unless the object has changed. A source without this
   * method is read by `get`.
   * @returns false when there is no such object
   * @throws Oversized, SourceDown
   */
  into?(key: string, maxBytes: number, sink: Sink): Promise<boolean>;
  close(): Promise<void>;
}

/** Returns a function that fetches tiles and entry bundles of limited size from a source, for the tree's readers. */
export const createSourceFetch =
  (source: Pick<Source, "get">): FetchObject =>
  (path) =>
    source.get(path, path.startsWith("tile/entries/") ? MAX_BYTES.bundle : MAX_BYTES.tile);

/**
 * Reads an object into a sink, continuing a cut transfer if the source can.
 * @returns false when there is no such object
 */
export async function fetchInto(
  source: Pick<Source, "get" | "into">,
  key: string,
  maxBytes: number,
  sink: Sink,
): Promise<boolean> {
  if (source.into) return source.into(key, maxBytes, sink);
  const bytes = await source.get(key, maxBytes);
  if (!bytes) return false;
  await sink.restart(null);
  await sink.write(bytes);
  return true;
}

/** A stranger's copy may hold a named pipe. Opened otherwise, it would wait for a writer for ever. */
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * A folder with the layout of the public store (a publisher's, a mirror's, or a copy) as a source. It is never
 * written to.
 */
export class DirectorySource implements Source {
  constructor(readonly name: string) {}

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const file = await open(join(this.name, checkKey(key)), OPEN_FLAGS).catch((error: unknown) => {
      if (isErrno(error, "ENOENT", "ENOTDIR")) return null;
      throw error;
    });
    if (!file) return null;
    try {
      const stat = await file.stat();
      if (!stat.isFile()) return null;
      if (stat.size > maxBytes) throw new Oversized(key, maxBytes);
      return await readAll(file, stat.size);
    } finally {
      await file.close();
    }
  }

  async close(): Promise<void> {}
}

/** Reads at most `size` bytes, even if the file grows meanwhile. */
async function readAll(file: Awaited<ReturnType<typeof open>>, size: number): Promise<Uint8Array> {
  const bytes = Buffer.alloc(size);
  let at = 0;
  while (at < size) {
    const { bytesRead } = await file.read(bytes, at, size - at, at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return bytes.subarray(0, at);
}
