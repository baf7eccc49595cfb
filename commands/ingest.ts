import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { dropOtherLake, openIngest } from "../pipelines/roles/ingesting.ts";
import { openParts } from "../pipelines/roles/parts.ts";
import { keysFor } from "../pipelines/roles/record-identity.ts";
import { withOpen } from "./files.ts";
import { rebuilt } from "./rebuilding.ts";
import { type RoleOptions, repeat, report } from "./report.ts";

/** Open the log, the chain of commits and the lake for one command: no money, no market. */
async function withIngest(config: Config, work: (ingest: Ingest) => Promise<void>): Promise<void> {
  await keysFor(config, systemClock.now());
  await withOpen(openParts(config, systemClock), (parts) =>
    withOpen(openIngest(parts, systemClock), ({ ingest }) => work(ingest)),
  );
}

/** `touchstone ingest`: log to segments to lake. */
export const ingest = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, (into) =>
    repeat(options, 10, async () => {
      const { rows, positions } = await into.pass();
      report(options, { rows, positions }, "touchstone grade --once");
    }),
  );

/** `touchstone redrive`: rejected bytes, read again with today's readers. */
export const redrive = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async (into) => report(options, { ...(await into.redrive()) }, "touchstone grade --once"));

/** `touchstone rebuild`: a new lake from the chain alone, whatever form the old one has. */
export async function rebuild(config: Config, options: RoleOptions): Promise<void> {
  await dropOtherLake(config, true);
  await withIngest(config, async (into) =>
    report(options, { rows: await rebuilt(into, options.json) }, "touchstone grade --once"),
  );
}

/** `touchstone gap accept`: holes between chain and log, written into the chain. */
export const acceptGap = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async (into) => {
    const holes = await into.acceptGap();
    report(options, { holes }, "touchstone ingest --once");
  });
