import { readFileSync } from "node:fs";
import {
  CreateBucketCommand,
  PutBucketLifecycleConfigurationCommand,
  PutBucketPolicyCommand,
  PutPublicAccessBlockCommand,
  S3Client,
  type S3ServiceException,
} from "@aws-sdk/client-s3";

/** How an operator reaches the store with rights over buckets. */
export interface Operator {
  endpoint: string | null;
  region: string;
  keyId: string;
  key: string;
}

/** Who writes the buckets, each an access key id, or an ARN with Amazon. */
export interface Writers {
  /** All that is public. */
  publisher: string;
  /** Public tables and evidence of its partitions, and nothing else there. */
  owner: string;
  /** The private bucket: observers, owners and publishers alike. */
  pipeline: string;
}

/** Names of the buckets, and who writes them. */
export interface Buckets extends Writers {
  public: string;
  private: string;
}

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), "utf8");

/** The policy of a bucket as it stands beside this file, for these names. */
export const policyOf = (which: "public" | "private", buckets: Buckets): string =>
  read(`${which}-policy.json`)
    .replaceAll(`touchstone-${which}`, buckets[which])
    .replaceAll('"PUBLISHER"', JSON.stringify(buckets.publisher))
    .replaceAll('"OWNER"', JSON.stringify(buckets.owner))
    .replaceAll('"PIPELINE"', JSON.stringify(buckets.pipeline));

/** What a store may say to what it has not: some have no lifecycle and no access block. */
const notHad = (error: unknown): boolean => (error as S3ServiceException | null)?.name === "NotImplemented";

/**
 * Makes both buckets as they have to be. Safe to repeat.
 * @returns what the store does not know how to do; it has to be seen to in another way
 */
export async function prepareBuckets(operator: Operator, buckets: Buckets): Promise<string[]> {
  const { endpoint, region, keyId: accessKeyId, key: secretAccessKey } = operator;
  const client = new S3Client({
    region,
    credentials: { accessKeyId, secretAccessKey },
    ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
    requestChecksumCalculation: "WHEN_REQUIRED",
  });
  const missing: string[] = [];
  const may = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!notHad(error)) throw error;
      missing.push(what);
    }
  };
  try {
    for (const which of ["public", "private"] as const) {
      const Bucket = buckets[which];
      await client.send(new CreateBucketCommand({ Bucket })).catch((error: S3ServiceException) => {
        if (error.name !== "BucketAlreadyOwnedByYou") throw error;
      });
      // Amazon's buckets are closed to the public until it is said otherwise; the private one stays so.
      const PublicAccessBlockConfiguration = JSON.parse(read(`${which}-access-block.json`));
      await may(`access block of ${Bucket}`, () =>
        client.send(new PutPublicAccessBlockCommand({ Bucket, PublicAccessBlockConfiguration })),
      );
      await client.send(new PutBucketPolicyCommand({ Bucket, Policy: policyOf(which, buckets) }));
      const LifecycleConfiguration = JSON.parse(read("lifecycle.json"));
      await may(`lifecycle of ${Bucket}`, () =>
        client.send(new PutBucketLifecycleConfigurationCommand({ Bucket, LifecycleConfiguration })),
      );
    }
  } finally {
    client.destroy();
  }
  return missing;
}
