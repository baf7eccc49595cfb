import { createHash, randomBytes } from "node:crypto";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  HeadObjectCommand,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
import { type ObjectMeta, StoreUnfit } from "../store.ts";
import { retrying, statusOf } from "./retry.ts";

/** Objects above this size go in parts of it; at most `PARTS_AT_ONCE` parts are in memory twice. */
export const PART_BYTES = 16 * 1024 * 1024;
const PARTS_AT_ONCE = 4;

/** `IfNoneMatch: *` (there is none) or `IfMatch: etag`: RFC 9110 section 13.1, as S3 has them on writes. */
export type Condition = { IfNoneMatch: "*" } | { IfMatch: string };

/** Whose write an object is: drawn for each write, so that a lost answer can be told from a lost race. */
const WRITE = "touchstone-write";

interface Target {
  client: S3Client;
  Bucket: string;
  Key: string;
}

const sha256base64 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64");

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
  const headers = headersOf(meta, write);
  const doing = `writing ${target.Key}`;
  return retrying(doing, async ({ unsure }) => {
    try {
      const etag =
        bytes.length > PART_BYTES
          ? await putInParts(target, bytes, condition, headers)
          : await putWhole(target, bytes, condition, headers);
      if (!etag) throw new StoreUnfit(`${doing}: the store names no etag`);
      return etag;
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

type WriteHeaders = ReturnType<typeof headersOf>;

async function putWhole(
  { client, Bucket, Key }: Target,
  bytes: Uint8Array,
  condition: Condition,
  headers: WriteHeaders,
): Promise<string | undefined> {
  const ChecksumSHA256 = sha256base64(bytes);
  const put = new PutObjectCommand({ Bucket, Key, Body: bytes, ChecksumSHA256, ...condition, ...headers });
  return (await client.send(put)).ETag;
}

/** A large object: the condition is evaluated when its parts are put together, so nobody ever sees half of it. */
async function putInParts(
  target: Target,
  bytes: Uint8Array,
  condition: Condition,
  headers: WriteHeaders,
): Promise<string | undefined> {
  const { client, Bucket, Key } = target;
  const created = await client.send(
    new CreateMultipartUploadCommand({ Bucket, Key, ChecksumAlgorithm: "SHA256", ...headers }),
  );
  const upload = { Bucket, Key, UploadId: created.UploadId! };
  try {
    const Parts = await uploadParts(client, upload, bytes);
    const complete = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts }, ...condition });
    return (await client.send(complete)).ETag;
  } catch (error) {
    // Parts that nobody puts together are paid for; the bucket's lifecycle takes what this misses.
    await client.send(new AbortMultipartUploadCommand(upload)).catch(() => undefined);
    throw error;
  }
}

async function uploadParts(
  client: S3Client,
  upload: { Bucket: string; Key: string; UploadId: string },
  bytes: Uint8Array,
) {
  const count = Math.ceil(bytes.length / PART_BYTES);
  const parts: { PartNumber: number; ETag: string; ChecksumSHA256: string }[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const i = next++;
      const Body = bytes.subarray(i * PART_BYTES, (i + 1) * PART_BYTES);
      const ChecksumSHA256 = sha256base64(Body);
      const PartNumber = i + 1;
      const sent = await retrying(`writing part ${PartNumber} of ${upload.Key}`, () =>
        client.send(new UploadPartCommand({ ...upload, PartNumber, Body, ChecksumSHA256 })),
      );
      parts[i] = { PartNumber, ETag: sent.ETag!, ChecksumSHA256 };
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARTS_AT_ONCE, count) }, worker));
  return parts;
}
