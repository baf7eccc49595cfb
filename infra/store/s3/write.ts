import { randomBytes } from "node:crypto";
import { HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { type ObjectMeta, StoreUnfit } from "../store.ts";
import { retrying, statusOf } from "./retry.ts";

/**
 * Objects above this size go in parts of it. The condition is evaluated when they are put together, so nobody ever sees
 * half of an object; parts that nobody puts together are taken back, and what that misses is the bucket's lifecycle's.
 */
export const PART_BYTES = 16 * 1024 * 1024;

/** `IfNoneMatch: *` (there is none) or `IfMatch: etag`: RFC 9110 section 13.1, as S3 has them on writes. */
export type Condition = { IfNoneMatch: "*" } | { IfMatch: string };

/** Whose write an object is: drawn for each write, so that a lost answer can be told from a lost race. */
const WRITE = "touchstone-write";

interface Target {
  client: S3Client;
  Bucket: string;
  Key: string;
}

const headersOf = (meta: ObjectMeta | undefined, write: string) => ({
  ...(meta?.contentType ? { ContentType: meta.contentType } : {}),
  ...(meta?.cacheControl ? { CacheControl: meta.cacheControl } : {}),
  ...(meta?.contentEncoding ? { ContentEncoding: meta.contentEncoding } : {}),
  Metadata: { [WRITE]: write },
});

/**
 * Write under a condition. An answer that was lost is not guessed at: the same write is sent again, and when the store
 * then says that the condition fails, the object is asked whose it is.
 * @returns the etag of our write, or null when the condition did not hold
 */
export async function conditionalWrite(
  target: Target,
  bytes: Uint8Array,
  condition: Condition,
  meta: ObjectMeta | undefined,
): Promise<string | null> {
  const write = randomBytes(12).toString("hex");
  const { client, ...at } = target;
  const params = { ...at, Body: bytes, ChecksumAlgorithm: "SHA256" as const, ...condition, ...headersOf(meta, write) };
  const doing = `writing ${target.Key}`;
  return retrying(doing, async ({ unsure }) => {
    try {
      const { ETag } = await new Upload({ client, params, partSize: PART_BYTES }).done();
      if (!ETag) throw new StoreUnfit(`${doing}: the store names no etag`);
      return ETag;
    } catch (error) {
      const status = statusOf(error);
      // 404: `IfMatch` on an object that is not there.
      if (status !== 412 && !(status === 404 && "IfMatch" in condition)) throw error;
      return unsure ? await oursNow(target, write) : null;
    }
  });
}

/** The object's etag if it is the write of this name. */
async function oursNow({ client, Bucket, Key }: Target, write: string): Promise<string | null> {
  return retrying(`asking whose ${Key} is`, async () => {
    try {
      const { Metadata, ETag } = await client.send(new HeadObjectCommand({ Bucket, Key }));
      return Metadata?.[WRITE] === write ? (ETag ?? null) : null;
    } catch (error) {
      if (statusOf(error) === 404) return null;
      throw error;
    }
  });
}
