import { existsSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { type Imported, importRegister, type Refused, registerPath } from "../pipelines/register/import.ts";
import { ProgressLine, print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Why a row was refused, for people. */
const REASONS: Readonly<Record<Refused["reason"], string>> = {
  no_row: "not a row of this table",
  no_lei: "no LEI: not 18 letters and digits and two check digits",
  check_digits: "check digits of the LEI are wrong",
  no_name: "no legal name",
  again: "occurs again: the newest is kept",
  no_domain: "not a host name",
  no_company: "LEI that is not in the golden copy",
};

const count = (n: number): string => n.toLocaleString("en");

const linesOf = (refused: readonly Refused[]): string[] =>
  refused.flatMap(({ reason, rows, examples }) => [
    `  refused ${count(rows)}: ${REASONS[reason]}`,
    ...examples.map((example) => `    ${example}`),
  ]);

export function importLines(done: Imported): string[] {
  const { domains } = done;
  return [
    `${done.source}: ${count(done.rows_read)} rows read, ${count(done.rows_kept)} companies with ${count(done.names)} names kept`,
    ...linesOf(done.refused),
    ...(domains ? [`domains: ${count(domains.rows_read)} lines read, ${count(domains.kept)} kept`] : []),
    ...linesOf(domains?.refused ?? []),
    `newest update ${done.newest_update ?? "unknown"}; ${(done.bytes / 1e6).toFixed(0)} MB in ${done.took_s} s: ${done.register}`,
    "a running service answers from it within seconds",
  ];
}

/** `touchstone register import`: makes the register of companies from GLEIF's golden copy (docs/companies-lookup.md). */
export async function importCommand(
  config: Config,
  source: string,
  options: OptionsOf<"register import">,
): Promise<void> {
  const line = new ProgressLine();
  const done = await importRegister({
    ...{ source, domains: options.domains, to: registerPath(config.data_dir), clock: systemClock },
    progress: (says) => {
      if (!options.json) line.show(`register: ${says}`);
    },
  });
  line.end();
  print(options, done, importLines(done));
}

const SAMPLE = join(import.meta.dirname, "../fixtures/register/golden-copy.csv");
const SAMPLE_DOMAINS = join(import.meta.dirname, "../fixtures/register/domains.csv");

/**
 * The demo's register: the sample of 48 companies, in a data folder that has none. Its lookup then
 * answers; without the sample beside this program it is neither sold nor advertised.
 */
export async function importSample(config: Config): Promise<void> {
  const to = registerPath(config.data_dir);
  if (!existsSync(SAMPLE) || existsSync(to)) return;
  await importRegister({ source: SAMPLE, domains: SAMPLE_DOMAINS, to, clock: systemClock });
}
