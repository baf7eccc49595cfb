import { DeleteObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import {
  checkKey,
  type ObjectInfo,
  type ObjectMeta,
  type Store,
  type StoredObject,
  type SwapResult,
} from "../store.ts";
import { createClient, type S3Place } from "./client.ts";
import { probeStore } from "./probe.ts";
import { getObject, getRange, headObject, listObjects } from "./read.ts";
import { retrying } from "./retry.ts";
import { conditionalWrite } from "./write.ts";

const DEFAULT_MAX_BYTES = 256 * 1024 * 1024;
const DEFAULT_LIMIT = 1_000;

/**
 * A bucket behind the store contract. Create-only is `If-None-Match: *`, swap is `If-Match`; every write carries its
 * sha256, which the server compares. S3 is durable and strongly consistent once it answered; an answer that was lost is
 * asked for again (write.ts). Content type, cache control and coding are kept, so a public bucket can be read as it is.
 * An etag is a hash of the content: an object that was replaced by others and then by the same bytes has its old etag
 * again. Nothing of ours is swapped back to bytes it had before.
 * Errors: BadKey, ObjectTooLarge, StoreFull, StoreDown, StoreUnfit (we are kept out), and S3's own for what is left.
 * @param options.probe false: the caller has a role that may not write (a serving replica); nothing is tried
 * @throws StoreUnfit unless the store enforces both conditions
 */
export async function openS3Store(place: S3Place, options: { probe?: boolean } = {}): Promise<Store> {
  const store = new S3Store(createClient(place), place);
  try {
    if (options.probe !== false) await probeStore(store);
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

class S3Store implements Store {
  readonly #client: S3Client;
  readonly #bucket: string;
  /** Folder in the bucket with its slash, or empty. */
  readonly #root: string;

  constructor(client: S3Client, { bucket, prefix }: S3Place) {
    this.#client = client;
    this.#bucket = bucket;
    this.#root = prefix ? `${prefix}/` : "";
  }

  #at(key: string) {
    return { client: this.#client, Bucket: this.#bucket, Key: this.#root + checkKey(key), key };
  }

  async get(key: string, options: { maxBytes?: number } = {}): Promise<StoredObject | null> {
    return getObject(this.#at(key), options.maxBytes ?? DEFAULT_MAX_BYTES);
  }

  async getRange(key: string, start: number, end: number): Promise<Uint8Array | null> {
    const at = this.#at(key);
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end < start) {
      throw new RangeError(`store: [${start}, ${end}) is no range of ${key}`);
    }
    return getRange(at, start, end);
  }

  async head(key: string): Promise<ObjectInfo | null> {
    return headObject(this.#at(key));
  }

  async create(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<{ result: "created" | "exists" }> {
    const etag = await conditionalWrite(this.#at(key), bytes, { IfNoneMatch: "*" }, meta);
    return { result: etag === null ? "exists" : "created" };
  }

  async swap(key: string, bytes: Uint8Array, expected: string | null, meta?: ObjectMeta): Promise<SwapResult> {
    const condition = expected === null ? { IfNoneMatch: "*" as const } : { IfMatch: expected };
    const etag = await conditionalWrite(this.#at(key), bytes, condition, meta);
    return etag === null ? { result: "lost" } : { result: "swapped", etag };
  }

  async list(prefix: string, options: { startAfter?: string; limit?: number } = {}): Promise<ObjectInfo[]> {
    const from = { client: this.#client, Bucket: this.#bucket, root: this.#root };
    return listObjects(from, prefix, options.startAfter, options.limit ?? DEFAULT_LIMIT);
  }

  async delete(key: string): Promise<void> {
    const { Bucket, Key } = this.#at(key);
    await retrying(`deleting ${key}`, () => this.#client.send(new DeleteObjectCommand({ Bucket, Key })));
  }

  async close(): Promise<void> {
    this.#client.destroy();
  }
}
