import { buildInfo } from "../infra/build-info.ts";
import type { Config } from "../infra/config.ts";
import type { Log } from "../infra/log/log.ts";
import { configuredNetworks } from "../infra/rails/networks.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { lagOf } from "../pipelines/roles/lag.ts";
import type { Watch } from "../pipelines/roles/pipeline.ts";
import { MACHINE_WORKS } from "../pipelines/roles/schedule.ts";
import type { Pulse } from "../serving/status/pulse.ts";

/** First line of a role's log: what runs, on which settings. Neither secrets nor addresses that may hold a key. */
export function sayStart(
  logger: Pick<Logger, "info">,
  config: Config,
  role: string,
  works: readonly string[] = [role],
): void {
  const { file, data_dir, base_url, host, port, status, log, stores, sell, spend, catalogues } = config;
  const at = { settings: file, data_dir, base_url };
  const parts = { log: log === null ? "embedded" : "kafka", private: stores.private, public: stores.public };
  const listens = { listens: `${host}:${port}`, status_port: status.port };
  const money = {
    networks: configuredNetworks(config).map(({ id }) => id),
    ...{
      sells_on: sell.network,
      spend_per_call: spend.per_call,
      spend_per_day: spend.per_day,
      spend_total: spend.total,
    },
  };
  const told = {
    ...buildInfo(config),
    role,
    works,
    ...at,
    ...parts,
    ...listens,
    ...money,
    catalogues: catalogues.length,
  };
  logger.info(told, "the role starts");
}

/** The health of a machine that does all works, told by what it does; it publishes, and nobody else does. */
export function watchMachine(
  pulse: Pulse,
  { log, ingest, metrics }: { log: Pick<Log, "bounds" | "partitions">; ingest: Ingest; metrics: Metrics },
  more: readonly string[] = [],
): Watch {
  pulse.setRequired(...MACHINE_WORKS, ...more);
  metrics.gauge("touchstone_publisher_active", 1);
  const all = Array.from({ length: log.partitions }, (_, partition) => partition);
  const ingested = async (): Promise<void> => {
    const lag = await lagOf(log, await ingest.positions(), all, metrics);
    pulse.setFacts({ partitions: all, lag });
  };
  return {
    during: (name, run, of) =>
      pulse.during(
        name,
        async () => {
          const result = await run();
          if (name === "ingest") await ingested();
          return result;
        },
        of,
      ),
    done: (name) => pulse.done(name),
    failed: (name, error, of) => pulse.failed(name, error, of),
  };
}
