import { S3Client } from "@aws-sdk/client-s3";

/** A bucket, or a folder in one, and who we are there. */
export interface S3Place {
  bucket: string;
  /** Folder in the bucket, without slashes at its ends; empty: the whole bucket. */
  prefix: string;
  region: string;
  /** Address of a store that is not Amazon's; null for Amazon's. */
  endpoint: string | null;
  accessKeyId: string;
  secretAccessKey: string;
  /** Requests are not signed: who we are is nobody in particular, as whoever reads a public bucket. */
  anonymous?: boolean;
}

/** Longest wait for a connection, and for the next byte of an answer, ms. */
const CONNECT_MS = 3_000;
const SILENCE_MS = 30_000;

/**
 * A client that tries once and adds nothing: retries are ours (retry.ts), since only we know what a lost answer means
 * for a conditional write; checksums are ours too, since the defaults turn bodies into chunked ones that old servers
 * store as they come (engines.md, S3).
 */
export function createClient(place: S3Place): S3Client {
  return new S3Client({
    region: place.region,
    ...(place.endpoint ? { endpoint: place.endpoint } : {}),
    forcePathStyle: place.endpoint !== null,
    credentials: { accessKeyId: place.accessKeyId, secretAccessKey: place.secretAccessKey },
    ...(place.anonymous ? { signer: { sign: async (request) => request } } : {}),
    maxAttempts: 1,
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: SILENCE_MS, requestTimeout: SILENCE_MS * 10 },
  });
}
