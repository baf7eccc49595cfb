import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { openStore } from "../../infra/store/open.ts";
import { openSource } from "../../pipelines/mirror/open-source.ts";
import type { Source } from "../../pipelines/mirror/source.ts";
import { StoreSource } from "../../pipelines/mirror/store-source.ts";

/**
 * The public record that a replica follows: `s3://bucket[/folder]` with the public store's credentials and endpoint of
 * the settings (they need only read), else what `touchstone mirror` takes.
 * @throws MirrorUsage, StoreUnfit
 */
export async function replicaSource(from: string, config: Config, clock: Clock): Promise<Source> {
  if (!from.startsWith("s3://")) return openSource(from, clock);
  const stores = { ...config.stores, public: from.replace(/\/+$/, "") };
  return new StoreSource(from, await openStore({ stores }, "public", "", false));
}
