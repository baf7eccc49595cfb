import { randomBytes } from "node:crypto";
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  S3Client,
} from "@aws-sdk/client-s3";
import {
  checkKey,
  type ObjectInfo,
  type ObjectMeta,
  ObjectTooLarge,
  type Store,
  type StoredObject,
  StoreUnfit,
  type SwapResult,
} from "../store.ts";
import { statusOf, withRetries } from "./retry.ts";
import { conditionalWrite } from "./write.ts";

const DEFAULT_MAX_BYTES = 256 * 1024 * 1024;
const DEFAULT_LIMIT = 1_000;

/** A bucket, or a folder in one, and the credentials for it. */
export interface S3Bucket {
  bucket: string;
  /** Folder in the bucket, without slashes at its ends; empty: the whole bucket. */
  prefix: string;
  region: string;
  /** Address of a store that is not Amazon's; null for Amazon's. */
  endpoint: string | null;
  accessKeyId: string;
  secretAccessKey: string;
  /** True: requests are not signed, as for any reader of a public bucket, and the credentials are not used. */
  anonymous?: boolean;
}

/** Longest wait for a connection, ms. */
const CONNECT_TIMEOUT_MS = 3_000;
/** Longest wait for the next byte of an answer, ms. */
const SILENCE_TIMEOUT_MS = 30_000;

/**
 * Makes an S3 client that tries each request once. Retries are made by retry.ts, because after a lost answer a
 * conditional write has to be checked. The SDK's default checksums are off: they send bodies in chunks, and old
 * servers store the chunk headers as part of the object (engines.md, S3).
 */
export function createClient(bucket: S3Bucket): S3Client {
  return new S3Client({
    region: bucket.region,
    ...(bucket.endpoint ? { endpoint: bucket.endpoint } : {}),
    forcePathStyle: bucket.endpoint !== null,
    credentials: { accessKeyId: bucket.accessKeyId, secretAccessKey: bucket.secretAccessKey },
    ...(bucket.anonymous ? { signer: { sign: async (request) => request } } : {}),
    maxAttempts: 1,
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SILENCE_TIMEOUT_MS,
      requestTimeout: SILENCE_TIMEOUT_MS * 10,
    },
  });
}

/**
 * Opens a bucket as a store. `create` writes with `If-None-Match: *`, `swap` with `If-Match`. Each write has its
 * sha256, which the server compares. Once S3 has answered, the write is durable and visible to all readers. After a
 * lost answer the write is sent again (write.ts). Content type, cache control and content encoding are stored, so
 * clients can read a public bucket directly. An etag is a hash of the content: an object that gets its earlier bytes
 * again has its earlier etag again. Touchstone never swaps an object back to earlier bytes. Errors: BadKey,
 * ObjectTooLarge, StoreFull, StoreDown, StoreUnfit (access refused), and other errors of S3 unchanged.
 * @param options.probe false for a role that may not write (a serving replica): whether the store enforces the two
 * conditions is not tested
 * @throws StoreUnfit unless the store enforces both conditions
 */
export async function openS3Store(bucket: S3Bucket, options: { probe?: boolean } = {}): Promise<Store> {
  const store = new S3Store(createClient(bucket), bucket);
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

  constructor(client: S3Client, { bucket, prefix }: S3Bucket) {
    this.#client = client;
    this.#bucket = bucket;
    this.#root = prefix ? `${prefix}/` : "";
  }

  #target(key: string) {
    return { client: this.#client, Bucket: this.#bucket, Key: this.#root + checkKey(key) };
  }

  async get(key: string, { maxBytes = DEFAULT_MAX_BYTES }: { maxBytes?: number } = {}): Promise<StoredObject | null> {
    const { client, ...address } = this.#target(key);
    return nullIfMissing(`reading ${key}`, async () => {
      const response = await client.send(new GetObjectCommand(address));
      const size = response.ContentLength ?? 0;
      if (size > maxBytes) {
        // Ends the connection, so that the body is not received.
        (response.Body as unknown as { destroy?: () => void })?.destroy?.();
        throw new ObjectTooLarge(key, size, maxBytes);
      }
      const bytes = (await response.Body?.transformToByteArray()) ?? new Uint8Array();
      // The connection may have been cut without an error.
      if (bytes.length !== size) throw new Error(`${bytes.length} of ${size} bytes of ${key} came`);
      return { ...infoOf(key, response, size), bytes };
    });
  }

  async getRange(key: string, start: number, end: number): Promise<Uint8Array | null> {
    const { client, ...address } = this.#target(key);
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end < start) {
      throw new RangeError(`store: [${start}, ${end}) is no range of ${key}`);
    }
    return nullIfMissing(`reading a part of ${key}`, async () => {
      // HTTP has no empty range, so a HEAD request finds out whether the object exists.
      if (start === end) {
        await client.send(new HeadObjectCommand(address));
        return new Uint8Array();
      }
      try {
        const response = await client.send(new GetObjectCommand({ ...address, Range: `bytes=${start}-${end - 1}` }));
        const bytes = (await response.Body?.transformToByteArray()) ?? new Uint8Array();
        if (bytes.length > end - start) throw new Error(`${key}: the store does not know ranges`);
        if (bytes.length !== response.ContentLength)
          throw new Error(`${bytes.length} of ${response.ContentLength} bytes came`);
        return bytes;
      } catch (error) {
        if (statusOf(error) === 416) return new Uint8Array();
        throw error;
      }
    });
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const { client, ...address } = this.#target(key);
    return nullIfMissing(`asking for ${key}`, async () => {
      const response = await client.send(new HeadObjectCommand(address));
      return infoOf(key, response, response.ContentLength ?? 0);
    });
  }

  async create(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<{ result: "created" | "exists" }> {
    const etag = await conditionalWrite(this.#target(key), bytes, { IfNoneMatch: "*" }, meta);
    return { result: etag === null ? "exists" : "created" };
  }

  async swap(key: string, bytes: Uint8Array, expected: string | null, meta?: ObjectMeta): Promise<SwapResult> {
    const condition = expected === null ? { IfNoneMatch: "*" as const } : { IfMatch: expected };
    const etag = await conditionalWrite(this.#target(key), bytes, condition, meta);
    return etag === null ? { result: "lost" } : { result: "swapped", etag };
  }

  /** Lists page by page up to the limit. S3 returns keys in bytewise order. */
  async list(prefix: string, options: { startAfter?: string; limit?: number } = {}): Promise<ObjectInfo[]> {
    const limit = options.limit ?? DEFAULT_LIMIT;
    const objects: ObjectInfo[] = [];
    let lastKey = options.startAfter;
    while (objects.length < limit) {
      const page = await withRetries(`listing ${prefix}`, () =>
        this.#client.send(
          new ListObjectsV2Command({
            Bucket: this.#bucket,
            Prefix: this.#root + prefix,
            MaxKeys: Math.min(MAX_PAGE_KEYS, limit - objects.length),
            ...(lastKey === undefined ? {} : { StartAfter: this.#root + lastKey }),
          }),
        ),
      );
      for (const one of page.Contents ?? [])
        objects.push(infoOf(one.Key!.slice(this.#root.length), one, one.Size ?? 0));
      if (!page.IsTruncated || !page.Contents?.length) break;
      lastKey = objects.at(-1)!.key;
    }
    return objects;
  }

  async delete(key: string): Promise<void> {
    const { Bucket, Key } = this.#target(key);
    await withRetries(`deleting ${key}`, () => this.#client.send(new DeleteObjectCommand({ Bucket, Key })));
  }

  async close(): Promise<void> {
    this.#client.destroy();
  }
}

/**
 * Tests whether a store enforces create-only and compare-and-swap writes: creates an object, creates it again, swaps it
 * from a wrong etag and from the right one, reads it, and deletes it.
 * @throws StoreUnfit for a store that lets a second creator or a swap from an old etag succeed
 */
export async function probeStore(store: Store): Promise<void> {
  const key = `probe/${randomBytes(8).toString("hex")}`;
  const bytes = (text: string): Uint8Array => Buffer.from(text);
  try {
    if ((await store.create(key, bytes("one"))).result !== "created") throw new StoreUnfit("a free key was taken");
    if ((await store.create(key, bytes("two"))).result !== "exists") {
      throw new StoreUnfit("it creates over an object: conditional writes (If-None-Match) are not enforced");
    }
    const { etag } = (await store.head(key))!;
    const staleSwap = await store.swap(key, bytes("three"), '"00000000000000000000000000000000"');
    if (staleSwap.result !== "lost") {
      throw new StoreUnfit("it swaps from a stale etag: conditional writes (If-Match) are not enforced");
    }
    if ((await store.swap(key, bytes("four"), etag)).result !== "swapped") {
      throw new StoreUnfit("it refuses a swap from the newest etag");
    }
    const stored = await store.get(key);
    if (Buffer.from(stored?.bytes ?? []).toString("utf8") !== "four")
      throw new StoreUnfit("it does not give back what was written");
  } finally {
    await store.delete(key);
  }
}

/** Largest number of keys of one page of a listing. */
const MAX_PAGE_KEYS = 1_000;

const infoOf = (
  key: string,
  { ETag, LastModified }: { ETag?: string | undefined; LastModified?: Date | undefined },
  size: number,
): ObjectInfo => ({ key, size, etag: ETag ?? "", modifiedAt: LastModified ?? new Date(0) });

/** Runs `work`; returns null when the object does not exist. Other errors are retried or thrown. */
const nullIfMissing = <T>(action: string, work: () => Promise<T>): Promise<T | null> =>
  withRetries(action, async () => {
    try {
      return await work();
    } catch (error) {
      if (statusOf(error) === 404) return null;
      throw error;
    }
  });
