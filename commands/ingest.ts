import type { Config } from "../infra/config.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { deleteLakeOfOtherForm } from "../pipelines/roles/open-ingest.ts";
import { withIngest } from "./opening.ts";
import { ProgressLine } from "./printer.ts";
import { type RoleOptions, repeat, report } from "./report.ts";

/**
 * `touchstone ingest`: copies records from the log into segments (files of records) and into the lake (the DuckDB
 * database).
 */
export const ingest = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, ({ ingest: lakeIngest }) =>
    repeat(options, 10, async () => {
      const { rows, positions } = await lakeIngest.pass();
      report(options, { rows, positions }, "touchstone grade --once");
    }),
  );

/**
 * `touchstone redrive`: parses again, with the parsers of this version, the records that an earlier version rejected.
 */
export const redrive = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async ({ ingest: lakeIngest }) =>
    report(options, { ...(await lakeIngest.redrive()) }, "touchstone grade --once"),
  );

/**
 * Rebuilds the lake from the segment files, and shows the progress on stderr.
 * @returns the number of rows in the new lake
 */
export async function rebuildLake(ingest: Pick<Ingest, "rebuild">, { json }: RoleOptions): Promise<number> {
  const line = new ProgressLine();
  const { rows } = await ingest.rebuild((doneSegments, totalSegments) => {
    const text = `rebuilding the lake: ${doneSegments} of ${totalSegments} segments`;
    if (!json) line.show(text, doneSegments >= totalSegments);
  });
  line.end(true);
  return rows;
}

/**
 * `touchstone rebuild`: deletes the lake, also one of a newer version, and rebuilds it from the chain of commits
 * (which lists the segments).
 */
export async function rebuild(config: Config, options: RoleOptions): Promise<void> {
  await deleteLakeOfOtherForm(config, true);
  await withIngest(config, async ({ ingest: lakeIngest }) =>
    report(options, { rows: await rebuildLake(lakeIngest, options) }, "touchstone grade --once"),
  );
}

/**
 * `touchstone gap accept`: accepts that the log lost records before they were ingested, and records the gaps in the
 * chain of commits, so that ingest goes on behind them.
 */
export const acceptGap = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async ({ ingest: lakeIngest }) => {
    const holes = await lakeIngest.acceptGap();
    report(options, { holes }, "touchstone ingest --once");
  });
