import { existsSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import {
  type AdditionalFileResult,
  type ImportResult,
  importRegister,
  type RefusedRows,
  registerPath,
} from "../pipelines/register/import.ts";
import { ProgressLine, print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Reasons for which a row is refused, for people. */
const REASONS: Readonly<Record<RefusedRows["reason"], string>> = {
  no_row: "not a row of this table",
  no_lei: "no LEI: not 18 letters and digits and two check digits",
  check_digits: "check digits of the LEI are wrong",
  no_name: "no legal name",
  again: "occurs again: the newest is kept",
  no_domain: "not a host name",
  no_company: "LEI that is not in the golden copy",
  other_kind: "names no parent: another relationship, or an unknown category",
  ended: "has ended, or was withdrawn",
  itself: "a company that is its own parent",
  no_reason: "no reason",
};

const count = (n: number): string => n.toLocaleString("en");

const refusalLines = (refused: readonly RefusedRows[]): string[] =>
  refused.flatMap(({ reason, rows, examples }) => [
    `  refused ${count(rows)}: ${REASONS[reason]}`,
    ...examples.map((example) => `    ${example}`),
  ]);

const besideLines = (what: string, read: AdditionalFileResult | null): string[] =>
  read ? [`${what}: ${count(read.rows_read)} lines read, ${count(read.kept)} kept`, ...refusalLines(read.refused)] : [];

export function importLines(done: ImportResult): string[] {
  return [
    `${done.source}: ${count(done.rows_read)} rows read, ${count(done.rows_kept)} companies with ${count(done.names)} names kept`,
    ...refusalLines(done.refused),
    ...besideLines("domains", done.domains),
    ...besideLines("relationship records", done.relationships),
    ...besideLines("reporting exceptions", done.exceptions),
    `newest update ${done.newest_update ?? "unknown"}; ${(done.bytes / 1e6).toFixed(0)} MB in ${done.took_s} s: ${done.register}`,
    "A running service uses the new register within seconds.",
  ];
}

/**
 * `touchstone register import`: builds the register of companies from GLEIF's golden copy (docs/companies-lookup.md).
 */
export async function importCommand(
  config: Config,
  source: string,
  options: OptionsOf<"register import">,
): Promise<void> {
  const line = new ProgressLine();
  const done = await importRegister({
    ...{ source, domains: options.domains, relationships: options.relationships, exceptions: options.exceptions },
    ...{ to: registerPath(config.data_dir), clock: systemClock },
    progress: (text) => {
      if (!options.json) line.show(`register: ${text}`);
    },
  });
  line.end();
  print(options, done, importLines(done));
}

const sample = (name: string): string => join(import.meta.dirname, `../fixtures/register/${name}.csv`);

/**
 * Imports the demo's register, a sample of 54 companies with some of their parents, into a data folder that has none.
 * Without the sample's files, as in an image, it does nothing, and the lookup is neither sold nor advertised.
 */
export async function importSample(config: Config): Promise<void> {
  const to = registerPath(config.data_dir);
  const source = sample("golden-copy");
  if (!existsSync(source) || existsSync(to)) return;
  const level2 = { relationships: sample("relationships"), exceptions: sample("exceptions") };
  await importRegister({ source, domains: sample("domains"), ...level2, to, clock: systemClock });
}
