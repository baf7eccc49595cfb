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
import type { OptionsOf } from "./table.ts";

/**
 * Days after the end of the keeping time in which our own sweep deletes an answer, before the store's lifecycle rule
 * does.
 */
const EXTRA_DAYS = 2;

const nameOf = (address: string | null, which: string): string => {
  const [bucket, ...folders] = address?.slice("s3://".length).split("/") ?? [];
  if (!bucket || folders.length > 0) {
    throw new ConfigError([`stores.${which}: name a whole bucket, s3://bucket: its policy is about all that is in it`]);
  }
  return bucket;
};

/**
 * `touchstone buckets`: creates the buckets of the settings with their policies and lifecycle rules: the two of the
 * record, and the one for sold calls if `stores.orders` names it. For this command only, `stores.private_key_id` and
 * `stores.private_key` are those of an operator who may create buckets.
 * @throws ConfigError, and the errors of the store
 */
export async function bucketsCommand(config: Config, options: OptionsOf<"buckets">): Promise<void> {
  const { stores, sell } = config;
  if (stores.private_key_id === null || stores.private_key === null) {
    throw new ConfigError(["stores.private_key_id, stores.private_key: an operator's, who may make buckets"]);
  }
  const { publisher, owner, pipeline, seller } = options;
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
  print(options, { ...buckets, missing }, [
    `${Object.values(buckets).join(" and ")} are set up`,
    ...missing.map((what) => `this store does not have: ${what}`),
    "how they are used: docs/deploy.md",
  ]);
}

/** A store, and credentials that may create buckets and set their policies. */
interface Operator {
  endpoint: string | null;
  region: string;
  keyId: string;
  key: string;
}

/** The writer of each kind of object, as an access key id, or as an ARN on Amazon. The options say what each writes. */
type Writers = Pick<OptionsOf<"buckets">, "publisher" | "owner" | "pipeline" | "seller">;

/** Names of the buckets, and who writes them. */
interface Buckets extends Writers {
  public: string;
  private: string;
  /** Absent when nothing is sold over this store. */
  orders?: string;
  /** Days for which answers of sold calls are kept. */
  keptDays?: number;
}

type Bucket = "public" | "private" | "orders";

const readTemplate = (name: string): string =>
  readFileSync(new URL(`../infra/deploy/s3/${name}`, import.meta.url), "utf8");

/** The policy of a bucket, from the deployment's files, with these names. */
export const policyOf = (which: Bucket, buckets: Buckets): string =>
  readTemplate(`${which}-policy.json`)
    .replaceAll(`touchstone-${which}`, buckets[which]!)
    .replaceAll('"SELLER"', JSON.stringify(buckets.seller))
    .replaceAll('"PUBLISHER"', JSON.stringify(buckets.publisher))
    .replaceAll('"OWNER"', JSON.stringify(buckets.owner))
    .replaceAll('"PIPELINE"', JSON.stringify(buckets.pipeline));

/**
 * Returns the lifecycle rules of a bucket: an order's objects expire some days after the sweep should have deleted
 * them.
 */
export function lifecycleOf(which: Bucket, { keptDays }: Pick<Buckets, "keptDays">) {
  const lifecycle = JSON.parse(readTemplate(which === "orders" ? "orders-lifecycle.json" : "lifecycle.json"));
  for (const { Expiration } of lifecycle.Rules)
    if (Expiration && keptDays !== undefined) Expiration.Days = keptDays + EXTRA_DAYS;
  return lifecycle;
}

/** Some stores have no lifecycle and no access block. */
const isNotImplemented = (error: unknown): boolean => (error as S3ServiceException | null)?.name === "NotImplemented";

/**
 * Creates the buckets with their policies and lifecycle rules. Safe to repeat.
 * @returns what the store does not implement, which the operator has to set up in another way
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
  const attempt = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!isNotImplemented(error)) throw error;
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
      // Amazon closes every bucket to the public by default; only the public one is opened.
      const PublicAccessBlockConfiguration = JSON.parse(
        readTemplate(`${which === "public" ? "public" : "private"}-access-block.json`),
      );
      await attempt(`access block of ${Bucket}`, () =>
        client.send(new PutPublicAccessBlockCommand({ Bucket, PublicAccessBlockConfiguration })),
      );
      await client.send(new PutBucketPolicyCommand({ Bucket, Policy: policyOf(which, buckets) }));
      const LifecycleConfiguration = lifecycleOf(which, buckets);
      await attempt(`lifecycle of ${Bucket}`, () =>
        client.send(new PutBucketLifecycleConfigurationCommand({ Bucket, LifecycleConfiguration })),
      );
    }
  } finally {
    client.destroy();
  }
  return missing;
}
