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
import { requireNamedFile } from "./files.ts";
import { ProgressLine, print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Reasons for which a row of an imported file is refused, as text for people. */
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

const formatCount = (n: number): string => n.toLocaleString("en");

const refusalLines = (refused: readonly RefusedRows[]): string[] =>
  refused.flatMap(({ reason, rows, examples }) => [
    `  refused ${formatCount(rows)}: ${REASONS[reason]}`,
    ...examples.map((example) => `    ${example}`),
  ]);

const otherFileLines = (what: string, fileReport: AdditionalFileResult | null): string[] =>
  fileReport
    ? [
        `${what}: ${formatCount(fileReport.rows_read)} lines read, ${formatCount(fileReport.kept)} kept`,
        ...refusalLines(fileReport.refused),
      ]
    : [];

export function importLines(result: ImportResult): string[] {
  return [
    `${result.source}: ${formatCount(result.rows_read)} rows read, ${formatCount(result.rows_kept)} companies with ${formatCount(result.names)} names kept`,
    ...refusalLines(result.refused),
    ...otherFileLines("domains", result.domains),
    ...otherFileLines("relationship records", result.relationships),
    ...otherFileLines("reporting exceptions", result.exceptions),
    `newest update ${result.newest_update ?? "unknown"}; ${(result.bytes / 1e6).toFixed(0)} MB in ${result.took_s} s: ${result.register}`,
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
  // A mistyped file name is refused before the import creates the data folder.
  const { domains, relationships, exceptions } = options;
  for (const file of [source, domains, relationships, exceptions]) if (file !== undefined) requireNamedFile(file);
  const line = new ProgressLine();
  const result = await importRegister({
    ...{ source, domains, relationships, exceptions },
    ...{ to: registerPath(config.data_dir), clock: systemClock },
    progress: (text) => {
      if (!options.json) line.show(`register: ${text}`, line.isOnTerminal);
    },
  });
  line.end();
  print(options, result, importLines(result));
}

const samplePath = (name: string): string => join(import.meta.dirname, `../fixtures/register/${name}.csv`);

/**
 * Imports the demo's register, a sample of 54 companies with some of their parents, into a data folder that has no
 * register. Without the sample's files, as in a container image, it does nothing, and the lookup of companies is
 * neither sold nor advertised.
 */
export async function importSample(config: Config): Promise<void> {
  const registerFile = registerPath(config.data_dir);
  const source = samplePath("golden-copy");
  if (!existsSync(source) || existsSync(registerFile)) return;
  const level2 = { relationships: samplePath("relationships"), exceptions: samplePath("exceptions") };
  await importRegister({ source, domains: samplePath("domains"), ...level2, to: registerFile, clock: systemClock });
}
