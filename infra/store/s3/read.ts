import { GetObjectCommand, HeadObjectCommand, ListObjectsV2Command, type S3Client } from "@aws-sdk/client-s3";
import { ObjectTooLarge } from "../errors.ts";
import type { ObjectInfo, StoredObject } from "../store.ts";
import { retrying, statusOf } from "./retry.ts";

interface Source {
  client: S3Client;
  Bucket: string;
  /** Key in the bucket, and the one that our callers know. */
  Key: string;
  key: string;
}

/** Most keys that a page of S3 holds. */
const PAGE = 1_000;

const missing = (error: unknown): boolean => statusOf(error) === 404;

const infoOf = (
  key: string,
  { ETag, LastModified }: { ETag?: string | undefined; LastModified?: Date | undefined },
  size: number,
): ObjectInfo => ({ key, size, etag: ETag ?? "", modifiedAt: LastModified ?? new Date(0) });

/** Null for an object that is not there; every other fault is retried or thrown. */
const unlessMissing = <T>(doing: string, work: () => Promise<T>): Promise<T | null> =>
  retrying(doing, async () => {
    try {
      return await work();
    } catch (error) {
      if (missing(error)) return null;
      throw error;
    }
  });

/** @throws ObjectTooLarge before a byte of the body was read */
export const getObject = ({ client, Bucket, Key, key }: Source, maxBytes: number): Promise<StoredObject | null> =>
  unlessMissing(`reading ${key}`, async () => {
    const found = await client.send(new GetObjectCommand({ Bucket, Key }));
    const size = found.ContentLength ?? 0;
    if (size > maxBytes) {
      // Ends the connection: nobody waits for bytes that nobody wants.
      (found.Body as unknown as { destroy?: () => void })?.destroy?.();
      throw new ObjectTooLarge(key, size, maxBytes);
    }
    const bytes = (await found.Body?.transformToByteArray()) ?? new Uint8Array();
    // A body that was cut without an error is not the object.
    if (bytes.length !== size) throw new Error(`${bytes.length} of ${size} bytes of ${key} came`);
    return { ...infoOf(key, found, size), bytes };
  });

/** Bytes [start, end), end not before start; past the object's end there are none. */
export const getRange = (
  { client, Bucket, Key, key }: Source,
  start: number,
  end: number,
): Promise<Uint8Array | null> =>
  unlessMissing(`reading a part of ${key}`, async () => {
    // HTTP has no empty range: whether the object is there is asked all the same.
    if (start === end) {
      await client.send(new HeadObjectCommand({ Bucket, Key }));
      return new Uint8Array();
    }
    try {
      const found = await client.send(new GetObjectCommand({ Bucket, Key, Range: `bytes=${start}-${end - 1}` }));
      const bytes = (await found.Body?.transformToByteArray()) ?? new Uint8Array();
      if (bytes.length > end - start) throw new Error(`${key}: the store does not know ranges`);
      if (bytes.length !== found.ContentLength) throw new Error(`${bytes.length} of ${found.ContentLength} bytes came`);
      return bytes;
    } catch (error) {
      if (statusOf(error) === 416) return new Uint8Array();
      throw error;
    }
  });

export const headObject = ({ client, Bucket, Key, key }: Source): Promise<ObjectInfo | null> =>
  unlessMissing(`asking for ${key}`, async () => {
    const found = await client.send(new HeadObjectCommand({ Bucket, Key }));
    return infoOf(key, found, found.ContentLength ?? 0);
  });

/** Keys below a prefix, in bytewise order as S3 lists them, page by page up to `limit`. */
export async function listObjects(
  { client, Bucket, root }: { client: S3Client; Bucket: string; root: string },
  prefix: string,
  startAfter: string | undefined,
  limit: number,
): Promise<ObjectInfo[]> {
  const found: ObjectInfo[] = [];
  let after = startAfter;
  while (found.length < limit) {
    const page = await retrying(`listing ${prefix}`, () =>
      client.send(
        new ListObjectsV2Command({
          Bucket,
          Prefix: root + prefix,
          MaxKeys: Math.min(PAGE, limit - found.length),
          ...(after === undefined ? {} : { StartAfter: root + after }),
        }),
      ),
    );
    for (const one of page.Contents ?? []) found.push(infoOf(one.Key!.slice(root.length), one, one.Size ?? 0));
    if (!page.IsTruncated || !page.Contents?.length) break;
    after = found.at(-1)!.key;
  }
  return found;
}
