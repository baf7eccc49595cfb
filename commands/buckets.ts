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
import { OBJECTS_FOLDER } from "../pipelines/orders/order-objects.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Days that the bucket's lifecycle rule waits longer than the service's own sweep before it deletes the answer of a
 * sold call, so that the rule deletes only what the sweep has missed.
 */
const EXTRA_DAYS = 2;

const nameOf = (address: string | null, which: string): string => {
  const [bucket, ...path] = address?.slice("s3://".length).split("/") ?? [];
  if (!bucket || path.length > 0) {
    throw new ConfigError([
      `stores.${which}: must be a whole bucket, s3://bucket, since the policy applies to the whole bucket`,
    ]);
  }
  return bucket;
};

/**
 * `touchstone buckets`: creates the buckets that the settings name, with their policies and lifecycle rules: the
 * private and the public one, and the one for sold calls if `stores.orders` names it. For this command only,
 * `stores.private_key_id` and `stores.private_key` are the credentials of an operator who may create buckets.
 * @throws ConfigError, and the errors of the store
 */
export async function bucketsCommand(config: Config, options: OptionsOf<"buckets">): Promise<void> {
  const { stores, sell } = config;
  if (stores.private_key_id === null || stores.private_key === null) {
    throw new ConfigError([
      "stores.private_key_id, stores.private_key: set them to an operator's credentials, which may create buckets",
    ]);
  }
  const { publisher, owner, pipeline, seller } = options;
  if ((stores.orders === null) !== (seller === undefined)) {
    throw new ConfigError(["stores.orders and --seller: give both or neither"]);
  }
  const writerIds = [publisher, owner, pipeline, ...(seller === undefined ? [] : [seller])];
  if (new Set(writerIds).size < writerIds.length) {
    throw new ConfigError(["--publisher, --owner, --pipeline and --seller: each needs different credentials"]);
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
  const unsupportedFeatures = await prepareBuckets(operator, {
    ...buckets,
    publisher,
    owner,
    pipeline,
    seller,
    keptDays,
  });
  print(options, { ...buckets, missing: unsupportedFeatures }, [
    `${Object.values(buckets).join(" and ")} are set up`,
    ...unsupportedFeatures.map((what) => `not supported by this store: ${what}`),
    "next: docs/deploy.md",
  ]);
}

/** A store, and credentials that may create buckets and set their policies. */
interface Operator {
  endpoint: string | null;
  region: string;
  keyId: string;
  key: string;
}

/** Who may write each kind of object: access key ids, or ARNs on Amazon. */
type Writers = Pick<OptionsOf<"buckets">, "publisher" | "owner" | "pipeline" | "seller">;

/** Names of the buckets, and who may write to them. */
interface Buckets extends Writers {
  public: string;
  private: string;
  /** Bucket for the orders of sold calls; absent if the settings name none. */
  orders?: string;
  /** Days for which answers of sold calls are stored. */
  keptDays?: number;
}

type Bucket = "public" | "private" | "orders";

const readTemplate = (name: string): string =>
  readFileSync(new URL(`../infra/deploy/s3/${name}`, import.meta.url), "utf8");

/** A statement of a bucket policy; `Principal` is "*" or names the writers. */
interface PolicyStatement {
  Principal: "*" | { AWS: string[] };
}

/**
 * Returns the policy of a bucket: the template in infra/deploy/s3, with the name of the bucket and its writers filled
 * in. Without a seller the statements about sellers are left out.
 */
export function policyOf(which: Bucket, buckets: Buckets): string {
  const writers: Readonly<Record<string, string | undefined>> = {
    ...{ SELLER: buckets.seller, PUBLISHER: buckets.publisher, OWNER: buckets.owner, PIPELINE: buckets.pipeline },
  };
  const template = readTemplate(`${which}-policy.json`).replaceAll(`touchstone-${which}`, buckets[which]!);
  const policy = JSON.parse(template) as { Statement: PolicyStatement[] };
  const statements = policy.Statement.flatMap((statement) => {
    if (statement.Principal === "*") return [statement];
    const ids = statement.Principal.AWS.flatMap((name) => writers[name] ?? []);
    return ids.length === 0 ? [] : [{ ...statement, Principal: { AWS: ids } }];
  });
  return JSON.stringify({ ...policy, Statement: statements });
}

/**
 * Returns the lifecycle rules of a bucket. The rule for the answers of sold calls is set to {@link EXTRA_DAYS} more
 * than `keptDays`.
 */
export function lifecycleOf(which: Bucket, { keptDays }: Pick<Buckets, "keptDays">) {
  const lifecycle = JSON.parse(readTemplate(which === "orders" ? "orders-lifecycle.json" : "lifecycle.json"));
  for (const { Filter, Expiration } of lifecycle.Rules)
    if (Filter.Prefix === OBJECTS_FOLDER && keptDays !== undefined) Expiration.Days = keptDays + EXTRA_DAYS;
  return lifecycle;
}

/**
 * Does this error mean that the store does not implement the request? Some stores have no lifecycle rules or no access
 * block.
 */
const isNotImplemented = (error: unknown): boolean => (error as S3ServiceException | null)?.name === "NotImplemented";

/**
 * Creates the buckets with their policies and lifecycle rules. Safe to repeat.
 * @returns what the store does not implement, for the operator to set up in another way
 */
export async function prepareBuckets(operator: Operator, buckets: Buckets): Promise<string[]> {
  const { endpoint, region, keyId: accessKeyId, key: secretAccessKey } = operator;
  const client = new S3Client({
    region,
    credentials: { accessKeyId, secretAccessKey },
    ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
    requestChecksumCalculation: "WHEN_REQUIRED",
  });
  const unsupportedFeatures: string[] = [];
  const attempt = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!isNotImplemented(error)) throw error;
      unsupportedFeatures.push(what);
    }
  };
  try {
    for (const which of ["public", "private", "orders"] as const) {
      const Bucket = buckets[which];
      if (Bucket === undefined) continue;
      await client.send(new CreateBucketCommand({ Bucket })).catch((error: S3ServiceException) => {
        if (error.name !== "BucketAlreadyOwnedByYou") throw error;
      });
      // Amazon blocks public access to every bucket by default; only the public bucket is opened.
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
  return unsupportedFeatures;
}
