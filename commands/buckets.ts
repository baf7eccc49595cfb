import { readFileSync } from "node:fs";
import {
  CreateBucketCommand,
  PutBucketLifecycleConfigurationCommand,
  PutBucketPolicyCommand,
  PutPublicAccessBlockCommand,
  S3Client,
  type S3ServiceException,
} from "@aws-sdk/client-s3";
import { type Config, ConfigError } from "../infra/config.ts";
import { print } from "./printer.ts";

export interface BucketsOptions extends Writers {
  json?: boolean;
}

/** Days after the last day of an answer in which the sweep has the first turn; then the store itself takes it. */
const SPARE_DAYS = 2;

const nameOf = (address: string | null, which: string): string => {
  const [bucket, ...folders] = address?.slice("s3://".length).split("/") ?? [];
  if (!bucket || folders.length > 0) {
    throw new ConfigError([
      `stores.${which}: name a whole bucket, s3://bucket: its policy speaks of all that is in it`,
    ]);
  }
  return bucket;
};

/**
 * `touchstone buckets`: makes the buckets of the settings with their policies and lifecycle: both of the record, and where
 * `stores.orders` names one that of what is sold. For this one command
 * `stores.private_key_id` and `stores.private_key` are an operator's who may do that.
 * @throws ConfigError, and what the store says
 */
export async function bucketsCommand(config: Config, { json, ...writers }: BucketsOptions): Promise<void> {
  const { stores, sell } = config;
  if (stores.private_key_id === null || stores.private_key === null) {
    throw new ConfigError(["stores.private_key_id, stores.private_key: an operator's, who may make buckets"]);
  }
  const { publisher, owner, pipeline, seller } = writers;
  if ((stores.orders === null) !== (seller === undefined)) {
    throw new ConfigError(["stores.orders and --seller: both, or neither"]);
  }
  const all = [publisher, owner, pipeline, ...(seller === undefined ? [] : [seller])];
  if (new Set(all).size < all.length) {
    throw new ConfigError(["publisher, owner, pipeline and seller have credentials of their own"]);
  }
  const operator = {
    endpoint: stores.endpoint,
    region: stores.region,
    keyId: stores.private_key_id,
    key: stores.private_key,
  };
  const buckets = {
    ...{ public: nameOf(stores.public, "public"), private: nameOf(stores.private, "private") },
    ...(stores.orders === null ? {} : { orders: nameOf(stores.orders, "orders") }),
  };
  const keptDays = sell.answers_kept_days;
  const missing = await prepareBuckets(operator, { ...buckets, publisher, owner, pipeline, seller, keptDays });
  print({ json }, { ...buckets, missing }, [
    `${Object.values(buckets).join(" and ")} are as they have to be`,
    ...missing.map((what) => `this store does not have: ${what}`),
    "how they are used: docs/deploy.md",
  ]);
}

/** How an operator reaches the store with rights over buckets. */
interface Operator {
  endpoint: string | null;
  region: string;
  keyId: string;
  key: string;
}

/** Who writes the buckets, each an access key id, or an ARN with Amazon. */
interface Writers {
  /** All that is public. */
  publisher: string;
  /** Public tables and evidence of its partitions, and nothing else there. */
  owner: string;
  /** The private bucket: observers, owners and publishers alike. */
  pipeline: string;
  /** What bought calls hold: every replica that sells, and nobody else. */
  seller?: string | undefined;
}

/** Names of the buckets, and who writes them. */
interface Buckets extends Writers {
  public: string;
  private: string;
  /** Absent where nothing is sold over this store. */
  orders?: string;
  /** Days that its answers are kept. */
  keptDays?: number;
}

type Bucket = "public" | "private" | "orders";

const read = (name: string): string => readFileSync(new URL(`../infra/deploy/s3/${name}`, import.meta.url), "utf8");

/** The policy of a bucket as it stands among the deployment's files, for these names. */
export const policyOf = (which: Bucket, buckets: Buckets): string =>
  read(`${which}-policy.json`)
    .replaceAll(`touchstone-${which}`, buckets[which]!)
    .replaceAll('"SELLER"', JSON.stringify(buckets.seller))
    .replaceAll('"PUBLISHER"', JSON.stringify(buckets.publisher))
    .replaceAll('"OWNER"', JSON.stringify(buckets.owner))
    .replaceAll('"PIPELINE"', JSON.stringify(buckets.pipeline));

/** The lifecycle of a bucket: objects of orders go by themselves once the sweep had its time for them. */
export function lifecycleOf(which: Bucket, { keptDays }: Pick<Buckets, "keptDays">) {
  const lifecycle = JSON.parse(read(which === "orders" ? "orders-lifecycle.json" : "lifecycle.json"));
  for (const { Expiration } of lifecycle.Rules)
    if (Expiration && keptDays !== undefined) Expiration.Days = keptDays + SPARE_DAYS;
  return lifecycle;
}

/** What a store may say to what it has not: some have no lifecycle and no access block. */
const notHad = (error: unknown): boolean => (error as S3ServiceException | null)?.name === "NotImplemented";

/**
 * Makes the buckets as they have to be. Safe to repeat.
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
    for (const which of ["public", "private", "orders"] as const) {
      const Bucket = buckets[which];
      if (Bucket === undefined) continue;
      await client.send(new CreateBucketCommand({ Bucket })).catch((error: S3ServiceException) => {
        if (error.name !== "BucketAlreadyOwnedByYou") throw error;
      });
      // Amazon's buckets are closed to the public until it is said otherwise; all but one stay so.
      const PublicAccessBlockConfiguration = JSON.parse(
        read(`${which === "public" ? "public" : "private"}-access-block.json`),
      );
      await may(`access block of ${Bucket}`, () =>
        client.send(new PutPublicAccessBlockCommand({ Bucket, PublicAccessBlockConfiguration })),
      );
      await client.send(new PutBucketPolicyCommand({ Bucket, Policy: policyOf(which, buckets) }));
      const LifecycleConfiguration = lifecycleOf(which, buckets);
      await may(`lifecycle of ${Bucket}`, () =>
        client.send(new PutBucketLifecycleConfigurationCommand({ Bucket, LifecycleConfiguration })),
      );
    }
  } finally {
    client.destroy();
  }
  return missing;
}
