import type { Config } from "../config.ts";
import { openDirectoryStore } from "./directory.ts";
import { type Store, StoreUnfit } from "./store.ts";

/** Names of the three stores. Each has separate credentials. */
export type StoreName = "private" | "public" | "orders";

/**
 * Opens a store of the settings: its bucket, or the folder `dir` when no bucket is set. The S3 client is loaded only
 * for a bucket.
 * @param writes false for a role that only reads: no test object is written, and without credentials requests are not
 * signed
 * @throws StoreUnfit for a bucket without credentials, or one that does not enforce conditional writes
 */
export async function openStore(
  { stores }: Pick<Config, "stores">,
  name: StoreName,
  dir: string,
  writes = true,
): Promise<Store> {
  const address = stores[name];
  if (address === null) return openDirectoryStore(dir);
  const [id, secret] = [stores[`${name}_key_id`], stores[`${name}_key`]];
  const anonymous = !writes && id === null && secret === null;
  if (!anonymous && (id === null || secret === null)) {
    throw new StoreUnfit(`${address} needs stores.${name}_key_id and stores.${name}_key`);
  }
  const { openS3Store } = await import("./s3/s3.ts");
  const [bucket, ...path] = address.slice("s3://".length).split("/");
  const { region, endpoint } = stores;
  const credentials = { accessKeyId: id ?? "", secretAccessKey: secret ?? "", anonymous };
  const bucketAddress = { bucket: bucket!, prefix: path.join("/"), region, endpoint, ...credentials };
  return openS3Store(bucketAddress, { probe: writes });
}
