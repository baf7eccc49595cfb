import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { openServingParts } from "../pipelines/roles/parts.ts";
import { MACHINE_WORK_KINDS, startMachine } from "../pipelines/roles/schedule.ts";
import { checkAtStart } from "./doctor.ts";
import { endInTime, untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { logStart, watchMachine } from "./machine-status.ts";
import { printServing, type RoleOptions, report } from "./report.ts";
import { observeOnce, type Roles, withRoles } from "./roles.ts";
import { openConfiguredSales } from "./selling.ts";
import { openServing, SELL_JOB, type ServingTier } from "./serving-tier.ts";
import type { OptionsOf } from "./table.ts";

/** `touchstone start` without --market: runs all roles, with the networks and catalogues of the settings. */
export async function startLive(config: Config, options: RoleOptions): Promise<void> {
  await checkAtStart(config, "start", options);
  await withRoles(config, async (openRoles) => runLive(config, options, openRoles), undefined, {
    watched: !options.once,
  });
}

type Selling = Awaited<ReturnType<typeof openConfiguredSales>>;

/**
 * Opens the sales that the settings describe, then the serving tier (HTTP API and pages), runs the work, and closes
 * both in reverse order.
 */
const withServing = (
  parts: Parameters<typeof openConfiguredSales>[0],
  serve: (selling: Selling) => Promise<ServingTier>,
  work: (serving: ServingTier) => Promise<void>,
): Promise<void> => withOpen(openConfiguredSales(parts, systemClock), (selling) => withOpen(serve(selling), work));

async function runLive(config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> {
  const { answers, ring } = parts.keys;
  const serve = (selling: Selling) =>
    openServing({ ...parts, answers, ring, ...selling, role: "start" as const }, systemClock);
  logStart(parts.logger, config, "start", [...MACHINE_WORK_KINDS, "follow", ...salesWorkKinds(config)]);
  await withServing(parts, serve, async (serving) => {
    if (options.once) {
      const { pipeline } = roles;
      const observed = await observeOnce(config, pipeline);
      const graded = await pipeline.grade(systemClock.now());
      await pipeline.publishIndex();
      await pipeline.writeVolatile();
      const facts = { ...observed.calls, ...graded, tree_size: roles.publisher.fold.size };
      return report(options, facts, "touchstone serve");
    }
    const pulse = watchMachine(serving.status.pulse, { ...parts, ...roles }, serving.sells ? [SELL_JOB] : []);
    const schedule = startMachine({ ...parts, ...roles, pulse, catalogues: config.catalogues });
    printServing(serving, options);
    await untilStopped();
    await schedule.stop();
  });
}

const salesWorkKinds = ({ sell }: Config): string[] => (sell.network === null ? [] : [SELL_JOB]);

/**
 * `touchstone serve`: answers from the public store; with `--from`, from a mirror of it, in one process or several.
 * @throws Failure `usage` for options of a mirror without `--from`
 */
export async function serveCommand(config: Config, options: OptionsOf<"serve">): Promise<void> {
  const { from, mirror, witnessPolicy, maxAge, processes, json } = options;
  const hasMirrorOptions = [mirror, witnessPolicy, maxAge].some((one) => one !== undefined) || processes !== 1;
  if (from === undefined && hasMirrorOptions) {
    throw new Failure("usage", "--mirror, --witness-policy, --max-age and --processes need --from");
  }
  if (from === undefined) return serveRole(config, options);
  const [{ runInProcesses }, { serveReplica }] = await Promise.all([import("./processes.ts"), import("./replica.ts")]);
  const { port } = config.status;
  await runInProcesses(
    processes,
    () => serveReplica(config, { from, mirror, witnessPolicy, maxAge, json }),
    // Each process has its own metrics, so each needs its own port for them.
    (k): Record<string, string> => (port ? { TOUCHSTONE_STATUS_PORT: String(port + k) } : {}),
  );
}

/**
 * Runs the serving role alone. It opens the public store, the private key for answers, and the log, to which it
 * appends asks (requests to probe a url). If it sells, it also opens the wallets and the observer's secret, and writes
 * published calls to the public store.
 */
async function serveRole(config: Config, options: RoleOptions): Promise<void> {
  await checkAtStart(config, "serve", options);
  await withOpen(openServingParts(config), (parts) => {
    logStart(parts.logger, config, "serve", ["follow", ...salesWorkKinds(config)]);
    const serve = (selling: Selling) => openServing({ ...parts, ...selling }, systemClock);
    return withServing(parts, serve, async (serving) => {
      printServing(serving, options);
      await untilStopped();
      endInTime(parts.logger);
    });
  });
}
