import type { Clock } from "../../infra/clock.ts";
import { keysDocument } from "../../infra/keys/keyring.ts";
import { createPublisher } from "../4-publish/publisher.ts";
import { openIngest, originOf } from "../assemble.ts";
import type { Parts } from "../parts.ts";
import { archivePlace } from "./place.ts";
import type { SupersedeParts } from "./supersede.ts";

/**
 * Log, lake and publisher for the archive alone: no money, no market. The lake has everything that the log holds.
 * @throws LakeBusy while a service owns the lake, and what ingest and publisher throw
 */
export async function openArchive(
  parts: Parts,
  clock: Clock,
): Promise<{ archive: SupersedeParts; pass(): Promise<unknown>; close(): Promise<void> }> {
  const { config, log, privateStore, publicStore, keys, logger, metrics } = parts;
  const { lake, ingest } = await openIngest(parts, clock);
  try {
    await ingest.pass();
    const origin = originOf(config.base_url);
    const { partitions } = log;
    const stores = { privateStore, publicStore };
    const publisher = createPublisher({ ...stores, signers: keys, clock, origin, partitions, logger, metrics });
    await publisher.start();
    await publisher.publishKeys(keysDocument(keys.ring));
    const place = archivePlace(publicStore, keys, origin, config.base_url);
    const archive = {
      ...place,
      lake,
      privateStore,
      publisher,
      partitions,
      logger,
      logId: log.id,
      now: () => clock.now(),
    };
    return { archive, pass: () => ingest.pass(), close: () => lake.close() };
  } catch (error) {
    await lake.close();
    throw error;
  }
}
