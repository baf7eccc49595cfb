import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { dayOf, dayStart } from "../pipelines/record/time.ts";
import { openServingParts } from "../pipelines/roles/parts.ts";
import { MACHINE_WORKS, startMachine } from "../pipelines/roles/schedule.ts";
import { atStart } from "./doctor.ts";
import { untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { sayStart, watchMachine } from "./machine-status.ts";
import { print } from "./printer.ts";
import { type RoleOptions, report, sayStatus } from "./report.ts";
import { type Roles, withRoles } from "./roles.ts";
import { configuredSales } from "./selling.ts";
import { openServing, SELL, type ServingTier } from "./serving-tier.ts";

/** `touchstone start` without a market: every role on the chain and the catalogues of the settings. */
export async function live(config: Config, options: RoleOptions): Promise<void> {
  await atStart(config, "start", options);
  await withRoles(config, async (all) => goLive(config, options, all), undefined, { watched: !options.once });
}

type Selling = Awaited<ReturnType<typeof configuredSales>>;

/** The serving tier with what the settings sell, for the work alone: the tier is closed first, then the sales. */
const withServing = (
  parts: Parameters<typeof configuredSales>[0],
  serve: (selling: Selling) => Promise<ServingTier>,
  work: (serving: ServingTier) => Promise<void>,
): Promise<void> => withOpen(configuredSales(parts, systemClock), (selling) => withOpen(serve(selling), work));

async function goLive(config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> {
  const { answers, ring } = parts.keys;
  const serve = (selling: Selling) =>
    openServing({ ...parts, answers, ring, ...selling, role: "start" as const }, systemClock);
  const sells = config.sell.network === null ? [] : [SELL];
  sayStart(parts.logger, config, "start", [...MACHINE_WORKS, "follow", ...sells]);
  await withServing(parts, serve, async (serving) => {
    if (options.once) {
      await roles.pipeline.intake(config.catalogues);
      const now = systemClock.now();
      const seen = await roles.pipeline.observe(await roles.pipeline.plan(dayOf(now)), dayStart(dayOf(now)), now);
      const graded = await roles.pipeline.grade(systemClock.now());
      await roles.pipeline.index();
      await roles.pipeline.volatile();
      return report(options, { ...seen, ...graded, tree_size: roles.publisher.fold.size }, "touchstone serve");
    }
    const pulse = watchMachine(serving.status.pulse, { ...parts, ...roles }, serving.sells ? [SELL] : []);
    const schedule = startMachine({ ...parts, ...roles, pulse, catalogues: config.catalogues });
    print(options, { serving: serving.url }, [`Serving at ${serving.url}`]);
    sayStatus(serving.status, options.json);
    await untilStopped();
    await schedule.stop();
  });
}

export interface ServeOptions extends Pick<RoleOptions, "json"> {
  /** Record that a replica mirrors, folder of its copy, and processes that share the port. */
  from?: string;
  mirror?: string;
  processes: number;
}

/** `touchstone serve`: a replica over the public store or, with `--from`, one that is a mirror, in one process or several. */
export async function serveCommand(config: Config, { from, mirror, processes, json }: ServeOptions): Promise<void> {
  if (from === undefined && (mirror !== undefined || processes !== 1)) {
    throw new Failure("usage", "--mirror and --processes need --from: only a replica has them");
  }
  if (from === undefined) return serveRole(config, { json });
  const [{ inProcesses }, { serveReplica }] = await Promise.all([import("./processes.ts"), import("./replica.ts")]);
  const { port } = config.status;
  await inProcesses(
    processes,
    () => serveReplica(config, { from, mirror, json }),
    // What each of them counted is its own: each shows it at a port of its own.
    (k): Record<string, string> => (port ? { TOUCHSTONE_STATUS_PORT: String(port + k) } : {}),
  );
}

/**
 * Answers only. It opens the public store, the log to append asks, and the key of the answers;
 * where it sells, the wallets and the observer's secret too, and the public store is written: bought calls are
 * published there.
 */
async function serveRole(config: Config, options: Pick<RoleOptions, "json"> = {}): Promise<void> {
  await atStart(config, "serve", options);
  await withOpen(openServingParts(config), (parts) => {
    sayStart(parts.logger, config, "serve", ["follow", ...(config.sell.network === null ? [] : [SELL])]);
    const serve = (selling: Selling) => openServing({ ...parts, ...selling }, systemClock);
    return withServing(parts, serve, async (serving) => {
      print(options, { serving: serving.url }, [`Serving at ${serving.url}`]);
      sayStatus(serving.status, options.json);
      await untilStopped();
    });
  });
}
