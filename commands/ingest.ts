import type { Config } from "../infra/config.ts";
import { dropOtherLake } from "../pipelines/roles/ingesting.ts";
import { withIngest } from "./opening.ts";
import { rebuilt } from "./rebuilding.ts";
import { type RoleOptions, repeat, report } from "./report.ts";

/** `touchstone ingest`: log to segments to lake. */
export const ingest = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, ({ ingest: into }) =>
    repeat(options, 10, async () => {
      const { rows, positions } = await into.pass();
      report(options, { rows, positions }, "touchstone grade --once");
    }),
  );

/** `touchstone redrive`: rejected bytes, read again with today's readers. */
export const redrive = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async ({ ingest: into }) =>
    report(options, { ...(await into.redrive()) }, "touchstone grade --once"),
  );

/** `touchstone rebuild`: a new lake from the chain alone, whatever form the old one has. */
export async function rebuild(config: Config, options: RoleOptions): Promise<void> {
  await dropOtherLake(config, true);
  await withIngest(config, async ({ ingest: into }) =>
    report(options, { rows: await rebuilt(into, options.json) }, "touchstone grade --once"),
  );
}

/** `touchstone gap accept`: holes between chain and log, written into the chain. */
export const acceptGap = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async ({ ingest: into }) => {
    const holes = await into.acceptGap();
    report(options, { holes }, "touchstone ingest --once");
  });
