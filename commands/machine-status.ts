import { buildInfo } from "../infra/build-info.ts";
import type { Config } from "../infra/config.ts";
import type { Log } from "../infra/log/log.ts";
import { configuredNetworks } from "../infra/rails/networks.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { measureLag } from "../pipelines/roles/lag.ts";
import type { Parts } from "../pipelines/roles/parts.ts";
import type { HealthReporter } from "../pipelines/roles/pipeline.ts";
import { MACHINE_WORK_KINDS } from "../pipelines/roles/schedule.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import type { Pulse } from "../serving/status/pulse.ts";
import { withOpen } from "./files.ts";
import { printStatus, type RoleOptions } from "./report.ts";

/**
 * Writes the first log line of a role: the role's name and the settings, without secrets and without addresses that
 * may contain a key.
 */
export function logStart(
  logger: Pick<Logger, "info">,
  config: Config,
  role: string,
  works: readonly string[] = [role],
): void {
  const { file, data_dir, base_url, host, port, status, log, stores, sell, spend, catalogues } = config;
  const facts = {
    ...buildInfo(config),
    ...{ role, works, settings: file, data_dir, base_url },
    ...{ log: log === null ? "embedded" : "kafka", private: stores.private, public: stores.public },
    ...{ listens: `${host}:${port}`, status_port: status.port },
    ...{ networks: configuredNetworks(config).map(({ id }) => id), sells_on: sell.network },
    ...{ spend_per_call: spend.per_call, spend_per_day: spend.per_day, spend_total: spend.total },
    catalogues: catalogues.length,
  };
  logger.info(facts, "the role starts");
}

/**
 * Runs `work` for a role that has no other HTTP listener. Logs the start, opens the status listener (/health and
 * /metrics) and prints its address; closes it after the work. With `--once` nothing listens.
 * @param first the job that must succeed once before /health reports the role as started
 */
export function withStatus<T>(
  config: Config,
  { clock, logger, metrics }: Pick<Parts, "clock" | "logger" | "metrics">,
  { role, works, first }: { role: "observe" | "own" | "publish"; works: readonly string[]; first: string },
  options: RoleOptions,
  work: (status: Status) => Promise<T>,
): Promise<T> {
  logStart(logger, config, role, works);
  return withOpen(openStatus(config, { role, clock, metrics, listen: !options.once }, first), (status) => {
    printStatus(status, options);
    return work(status);
  });
}

/**
 * Makes /health report the jobs of a machine with all roles, and how far its lake is behind the log. The machine is
 * the only publisher, so the metric of the active publisher is set to 1.
 */
export function watchMachine(
  pulse: Pulse,
  { log, ingest, metrics }: { log: Pick<Log, "bounds" | "partitions">; ingest: Ingest; metrics: Metrics },
  otherWork: readonly string[] = [],
): HealthReporter {
  pulse.setRequired(...MACHINE_WORK_KINDS, ...otherWork);
  metrics.gauge("touchstone_publisher_active", 1);
  const partitions = Array.from({ length: log.partitions }, (_, partition) => partition);
  const reportLag = async (): Promise<void> => {
    const lag = await measureLag(log, await ingest.positions(), partitions, metrics);
    pulse.setFacts({ partitions: partitions, lag });
  };
  return {
    during: (name, run, of) =>
      pulse.during(
        name,
        async () => {
          const result = await run();
          if (name === "ingest") await reportLag();
          return result;
        },
        of,
      ),
    done: (name) => pulse.done(name),
    failed: (name, error, of) => pulse.failed(name, error, of),
  };
}
