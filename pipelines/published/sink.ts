import { appendFile, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sha256hex } from "../../infra/canonical.ts";
import { isErrno } from "../../infra/store/store.ts";
import { parseJson } from "./errors.ts";

/**
 * Receives the bytes of one object while a mirror fetches it. A transfer that was interrupted continues after
 * `receivedBytes`.
 */
export interface Sink {
  /**
   * Number of bytes received, and the object's strong etag. etag null: the object had none, so the transfer cannot be
   * continued.
   */
  readonly receivedBytes: number;
  readonly etag: string | null;
  /** Discards what was received and begins at the first byte of an object with this etag. */
  restart(etag: string | null): Promise<void>;
  /** Appends a chunk. Calls must not overlap. @throws for a fault of our own disk */
  write(chunk: Uint8Array): Promise<void>;
}

/** An object in memory. */
export class MemorySink implements Sink {
  #chunks: Uint8Array[] = [];
  receivedBytes = 0;
  etag: string | null = null;

  async restart(etag: string | null): Promise<void> {
    this.#chunks = [];
    this.receivedBytes = 0;
    this.etag = etag;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#chunks.push(chunk);
    this.receivedBytes += chunk.length;
  }

  bytes = (): Buffer => Buffer.concat(this.#chunks, this.receivedBytes);
}

/**
 * Folder of objects that a mirror has not fetched completely, so that a mirror that was killed continues its transfers.
 * The folder is never served. Its content is not trusted: the whole object is proven after its last byte.
 */
export class PartFolder {
  constructor(private readonly dir: string) {}

  async open(key: string): Promise<PartFile> {
    await mkdir(this.dir, { recursive: true });
    return PartFile.open(join(this.dir, sha256hex(key).slice(0, 32)), key);
  }

  /** Removes all incomplete objects, which no later run will continue. */
  async collectGarbage(): Promise<void> {
    const leftoverFiles = await readdir(this.dir).catch((error: unknown) => {
      if (isErrno(error, "ENOENT")) return [];
      throw error;
    });
    for (const name of leftoverFiles)
      if (/^[0-9a-f]{32}(?:\.json)?$/.test(name)) await rm(join(this.dir, name), { force: true });
  }
}

/**
 * An incomplete object in a file, with its key and etag in a second file. The files are not fsynced: bytes that a
 * power cut loses are fetched again. An object without an etag is kept in memory only, since its transfer cannot be
 * continued.
 */
export class PartFile implements Sink {
  #chunks: Uint8Array[] = [];

  private constructor(
    private readonly path: string,
    private readonly key: string,
    public receivedBytes: number,
    public etag: string | null,
  ) {}

  static async open(path: string, key: string): Promise<PartFile> {
    const savedInfo = parseJson(await readFile(`${path}.json`).catch(() => Buffer.alloc(0)));
    const { key: savedKey, etag } = (savedInfo ?? {}) as { key?: unknown; etag?: unknown };
    const fileInfo = await stat(path).catch(() => null);
    const isResumable = fileInfo && savedKey === key && typeof etag === "string";
    return new PartFile(path, key, isResumable ? fileInfo.size : 0, isResumable ? etag : null);
  }

  async restart(etag: string | null): Promise<void> {
    // The old files are removed first. Otherwise a crash here could leave old bytes, to which a later run would
    // append new ones.
    await this.remove();
    this.etag = etag;
    if (etag === null) return;
    await writeFile(this.path, "");
    await writeFile(`${this.path}.json`, JSON.stringify({ key: this.key, etag }));
  }

  async write(chunk: Uint8Array): Promise<void> {
    if (this.etag === null) this.#chunks.push(chunk);
    else await appendFile(this.path, chunk);
    this.receivedBytes += chunk.length;
  }

  async bytes(): Promise<Buffer> {
    return this.etag === null ? Buffer.concat(this.#chunks, this.receivedBytes) : readFile(this.path);
  }

  async remove(): Promise<void> {
    await rm(`${this.path}.json`, { force: true });
    await rm(this.path, { force: true });
    this.receivedBytes = 0;
    this.etag = null;
    this.#chunks = [];
  }
}
