import { type Config, ConfigError } from "../infra/config.ts";
import { prepareBuckets, type Writers } from "../infra/deploy/s3/prepare.ts";

export interface BucketsOptions extends Writers {
  json?: boolean;
}

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
 * `touchstone buckets`: makes the two buckets of the settings with their policies and lifecycle. For this one command
 * `stores.private_key_id` and `stores.private_key` are an operator's who may do that.
 * @throws ConfigError, and what the store says
 */
export async function bucketsCommand(config: Config, { json, ...writers }: BucketsOptions): Promise<void> {
  const { stores } = config;
  if (stores.private_key_id === null || stores.private_key === null) {
    throw new ConfigError(["stores.private_key_id, stores.private_key: an operator's, who may make buckets"]);
  }
  const { publisher, owner, pipeline } = writers;
  if (new Set([publisher, owner, pipeline]).size < 3) {
    throw new ConfigError(["publisher, owner and pipeline have credentials of their own"]);
  }
  const operator = {
    endpoint: stores.endpoint,
    region: stores.region,
    keyId: stores.private_key_id,
    key: stores.private_key,
  };
  const buckets = { public: nameOf(stores.public, "public"), private: nameOf(stores.private, "private") };
  const missing = await prepareBuckets(operator, { ...buckets, publisher, owner, pipeline });
  if (json) {
    process.stdout.write(`${JSON.stringify({ ...buckets, missing })}\n`);
    return;
  }
  const lacks = missing.map((what) => `this store does not have: ${what}\n`).join("");
  process.stdout.write(
    `${buckets.public} and ${buckets.private} are as they have to be\n${lacks}how they are used: docs/deploy.md\n`,
  );
}
