import { randomBytes } from "node:crypto";
import { HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { type ObjectMeta, StoreUnfit } from "../store.ts";
import { statusOf, withRetries } from "./retry.ts";

/**
 * Objects above this size are uploaded in parts of this size. The store checks the condition when it joins the parts,
 * so a reader never sees half of an object. The SDK removes the parts of an upload that failed; parts of a process
 * that died are left to a lifecycle rule of the bucket.
 */
export const PART_BYTES = 16 * 1024 * 1024;

/** `IfNoneMatch: *`: the object must not exist. `IfMatch`: it must have this etag (RFC 9110 section 13.1). */
export type Condition = { IfNoneMatch: "*" } | { IfMatch: string };

/**
 * Name of the metadata field with the random id of the write that made an object. After a lost answer the id shows
 * whether our write or another one succeeded.
 */
const WRITE_ID_FIELD = "touchstone-write";

interface Target {
  client: S3Client;
  Bucket: string;
  Key: string;
}

const objectFields = (meta: ObjectMeta | undefined, writeId: string) => ({
  ...(meta?.contentType ? { ContentType: meta.contentType } : {}),
  ...(meta?.cacheControl ? { CacheControl: meta.cacheControl } : {}),
  ...(meta?.contentEncoding ? { ContentEncoding: meta.contentEncoding } : {}),
  Metadata: { [WRITE_ID_FIELD]: writeId },
});

/**
 * Writes an object under a condition. When an answer is lost, the write is sent again; if the store then answers that
 * the condition does not hold, the object's write id shows whether the first try had succeeded.
 * @returns the etag of our write, or null when the condition did not hold
 */
export async function conditionalWrite(
  target: Target,
  bytes: Uint8Array,
  condition: Condition,
  meta: ObjectMeta | undefined,
): Promise<string | null> {
  const writeId = randomBytes(12).toString("hex");
  const { client, ...address } = target;
  const params = {
    ...address,
    Body: bytes,
    ChecksumAlgorithm: "SHA256" as const,
    ...condition,
    ...objectFields(meta, writeId),
  };
  const action = `writing ${target.Key}`;
  return withRetries(action, async ({ unsure }) => {
    try {
      const { ETag } = await new Upload({ client, params, partSize: PART_BYTES }).done();
      if (!ETag) throw new StoreUnfit(`${action}: the store names no etag`);
      return ETag;
    } catch (error) {
      const status = statusOf(error);
      // S3 answers 404 to `IfMatch` when the object does not exist.
      if (status !== 412 && !(status === 404 && "IfMatch" in condition)) throw error;
      return unsure ? await etagIfOurs(target, writeId) : null;
    }
  });
}

/** Returns the object's etag if our write created it, else null. */
async function etagIfOurs({ client, Bucket, Key }: Target, writeId: string): Promise<string | null> {
  return withRetries(`asking whose ${Key} is`, async () => {
    try {
      const { Metadata, ETag } = await client.send(new HeadObjectCommand({ Bucket, Key }));
      return Metadata?.[WRITE_ID_FIELD] === writeId ? (ETag ?? null) : null;
    } catch (error) {
      if (statusOf(error) === 404) return null;
      throw error;
    }
  });
}
