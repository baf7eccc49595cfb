import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { openStore } from "../../infra/store/open.ts";
import { MirrorUsage, NoSource } from "./errors.ts";
import { HttpSource } from "./http-source.ts";
import { recordFolder } from "./record-folder.ts";
import { DirectorySource, type Source } from "./source.ts";
import { StoreSource } from "./store-source.ts";

/**
 * The source that an operator named: an http(s) address, a bucket, else a folder: the public one, or the one around it.
 * @param settings where the credentials of a bucket stand (stores.public_key_id and so on); only read for one
 * @throws MirrorUsage when it is none of them, StoreUnfit for a bucket without credentials
 */
export async function openSource(name: string, clock: Clock, settings?: () => Pick<Config, "stores">): Promise<Source> {
  if (name.startsWith("s3://")) return openBucket(name.replace(/\/+$/, ""), settings);
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(name)) return new HttpSource(name, { clock });
  const found = await recordFolder(name);
  if (!found) throw new NoSource(name);
  return new DirectorySource(found.publicDir);
}

async function openBucket(name: string, settings: (() => Pick<Config, "stores">) | undefined): Promise<Source> {
  if (!settings) throw new MirrorUsage(`no credentials for ${name}`);
  if (!/^s3:\/\/[a-z0-9][a-z0-9.-]+(?:\/[A-Za-z0-9._=-]+)*$/.test(name)) throw new MirrorUsage(`not a bucket: ${name}`);
  const { stores } = settings();
  return new StoreSource(name, await openStore({ stores: { ...stores, public: name } }, "public", "", false));
}
