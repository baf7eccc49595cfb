import { type Command, Help, InvalidArgumentError, Option } from "commander";
import type { Config } from "../infra/config.ts";
import { isDay } from "../pipelines/record/time.ts";
import { EXIT, EXIT_MEANINGS, type ExitName } from "./exit.ts";
import type { ArgsOfRow, CommandRow, OptionRow } from "./row.ts";
import { COMMANDS, GROUPS, type OptionsOf, type Words } from "./table.ts";

/**
 * Options that the function of a command gets besides those of the command line, by `opens` in its row of the table.
 */
interface OpenedOptions {
  settings: unknown;
  market: { worldScript: string };
  record: { settings: () => Config };
  nothing: unknown;
}

type OpensOf<Row> = Row extends { opens: keyof OpenedOptions & infer Opens } ? Opens : "settings";
type FirstArgumentOf<Opens> = Opens extends "settings" | "market" ? [Config] : [];

/** Type of the function that runs a command, derived from the command's row of the table. */
type RunOf<W extends Words, Row = (typeof COMMANDS)[W], Opens = OpensOf<Row>> = (
  ...given: [...FirstArgumentOf<Opens>, ...ArgsOfRow<Row>, OptionsOf<W> & OpenedOptions[Opens & keyof OpenedOptions]]
) => unknown;

/**
 * Functions that load the code of a command. Each is called only when a user runs the command, so that no command
 * loads the packages of another.
 */
const RUNNERS: { [W in Words]: () => Promise<RunOf<W>> } = {
  start: async () => (await import("./start.ts")).start,
  init: async () => (await import("./init.ts")).initCommand,
  keygen: async () => (await import("./keys.ts")).makeKeysCommand,
  "keys list": async () => (await import("./keys.ts")).listKeys,
  "keys rotate": async () => (await import("./keys.ts")).rotateKeys,
  observe: async () => (await import("./observe.ts")).observe,
  listing: async () => (await import("./listing.ts")).listingCommand,
  "listings add": async () => (await import("./listings.ts")).addListings,
  "listings list": async () => (await import("./listed.ts")).listListings,
  "listings show": async () => (await import("./listed.ts")).showListing,
  "listings remove": async () => (await import("./listed.ts")).removeListing,
  "register import": async () => (await import("./register.ts")).importCommand,
  ingest: async () => (await import("./ingest.ts")).ingest,
  grade: async () => (await import("./roles.ts")).grade,
  own: async () => (await import("./own.ts")).own,
  publish: async () => (await import("./publish.ts")).publish,
  archive: async () => (await import("./archive.ts")).archive,
  "archive supersede": async () => (await import("./archive.ts")).archiveSupersede,
  budget: async () => (await import("./budget.ts")).budget,
  ledger: async () => (await import("./ledger.ts")).ledgerCommand,
  "wallets new": async () => (await import("./wallets.ts")).newWallets,
  "wallets list": async () => (await import("./wallets.ts")).listWallets,
  "wallets sweep": async () => (await import("./wallets.ts")).sweepWallets,
  "plan show": async () => (await import("./plan.ts")).showPlan,
  serve: async () => (await import("./serve.ts")).serveCommand,
  buckets: async () => (await import("./buckets.ts")).bucketsCommand,
  redrive: async () => (await import("./ingest.ts")).redrive,
  rebuild: async () => (await import("./ingest.ts")).rebuild,
  migrate: async () => (await import("./migrate.ts")).migrate,
  mirror: async () => (await import("./mirror.ts")).mirror,
  "mirror serve": async () => (await import("./mirror-serve.ts")).mirrorServe,
  witness: async () => (await import("./witness.ts")).witnessCommand,
  monitor: async () => (await import("./monitor.ts")).monitorCommand,
  audit: async () => (await import("./audit.ts")).auditCommand,
  verify: async () => (await import("./verify.ts")).verifyCommand,
  export: async () => (await import("./export.ts")).exportCommand,
  correct: async () => (await import("./corrections.ts")).correct,
  reinstate: async () => (await import("./corrections.ts")).reinstate,
  dispute: async () => (await import("./corrections.ts")).dispute,
  recompute: async () => (await import("./recompute.ts")).recomputeCommand,
  exposure: async () => (await import("./exposure.ts")).exposureCommand,
  check: async () => (await import("./check.ts")).checkCommand,
  buy: async () => (await import("./buy.ts")).buyCommand,
  resume: async () => (await import("./resume.ts")).resumeCommand,
  doctor: async () => (await import("./doctor.ts")).doctorCommand,
  "gap accept": async () => (await import("./ingest.ts")).acceptGap,
};

function parseWholeNumber(text: string): number {
  const n = Number(text);
  if (!Number.isInteger(n) || n < 0) throw new InvalidArgumentError("expected a whole number");
  return n;
}

function parseUtcDay(text: string): string {
  if (!isDay(text)) throw new InvalidArgumentError("expected a date such as 2026-11-21");
  return text;
}

/** Parsers for values of options and arguments, by the name of the value: `n` for `--width <n>`, `day` for `<day>`. */
const VALUE_PARSERS: Record<string, (text: string) => unknown> = {
  n: parseWholeNumber,
  seconds: parseWholeNumber,
  fd: parseWholeNumber,
  date: parseUtcDay,
  day: parseUtcDay,
};

const collect = (value: string, earlierValues: string[]): string[] => [...earlierValues, value];

const toOptionRow = (definition: string | OptionRow): OptionRow =>
  typeof definition === "string" ? { means: definition } : definition;

function createOption(flags: string, definition: string | OptionRow): Option {
  const row = toOptionRow(definition);
  const option = new Option(flags, row.means).makeOptionMandatory(row.required === true);
  const parseValue = VALUE_PARSERS[/<(\w+)>/.exec(flags)?.[1] ?? ""];
  if (parseValue) option.argParser(parseValue);
  if (row.choices) option.choices(row.choices);
  if (row.default !== undefined) option.default(row.default);
  return row.repeated ? option.argParser(collect).default([]) : option;
}

/** All rows of the table, each with the words of its command, such as `wallets new`. */
export const ROWS = Object.entries(COMMANDS) as [Words, CommandRow][];

/** Returns the examples of a command as complete command lines. */
export const examplesOf = (words: string, { examples = [""] }: CommandRow): string[] =>
  examples.map((rest) => `touchstone ${words} ${rest}`.trimEnd());

/** Returns the names of all exit codes of a command, in the order of their numbers. */
export const exitsOf = ({ exits }: CommandRow): ExitName[] =>
  [...new Set(["ok", "failed", "usage", ...exits] as const)].sort((a, b) => EXIT[a] - EXIT[b]);

/** Returns the text that `--help` prints below the options. */
function helpAfterOptions(words: string, row: CommandRow): string {
  const codes = exitsOf(row).map((name) => `  ${`${EXIT[name]} ${name}`.padEnd(15)} ${EXIT_MEANINGS[name]}`);
  const examples = examplesOf(words, row).map((one) => `  ${one}`);
  return [
    ...(row.notes ? ["", row.notes] : []),
    ...["", `Prints ${row.prints}.`, `More: docs/${row.page}.md`],
    ...["", "Examples:", ...examples, "", "Exit codes:", ...codes],
  ].join("\n");
}

/** Returns a command and all its subcommands, recursively. */
export const commandsOf = (command: Command): Command[] => [command, ...command.commands.flatMap(commandsOf)];

/** Returns the settings that options of the command line override, as environment variables. */
function settingsFromOptions({ options = {} }: CommandRow, command: Command): Record<string, string> {
  const settingEntries = Object.entries(options).flatMap(([flags, definition]) => {
    const value: unknown = command.opts()[new Option(flags).attributeName()];
    const name = toOptionRow(definition).setting;
    return name && value ? [[name, String(value)]] : [];
  });
  return Object.fromEntries(settingEntries);
}

/** What touchstone.ts passes to its commands. */
interface CommandContext {
  /** Reads the settings. @param overrides settings from options of the command line, as environment variables */
  settings(overrides?: Record<string, string>): Config;
  /** Path of the script that runs the demo's market. */
  worldScript: string;
}

async function run(words: Words, row: CommandRow, command: Command, context: CommandContext): Promise<void> {
  const work = (await RUNNERS[words]()) as (...given: unknown[]) => unknown;
  // For an option that both a command and its subcommand have, commander sets the value at the command, as with --json
  // in `archive supersede --json`. So the options of both are read.
  const options = command.optsWithGlobals();
  const args = command.processedArgs;
  const { settings, worldScript } = context;
  if (row.opens === "nothing") await work(...args, options);
  else if (row.opens === "record") await work(...args, { ...options, settings });
  else {
    const marketOption = row.opens === "market" ? { worldScript } : {};
    await work(settings(settingsFromOptions(row, command)), ...args, { ...options, ...marketOption });
  }
}

/** Adds the commands of the table to the program. The help marks required options with `(required)`. */
export function addCommands(program: Command, context: CommandContext): void {
  const defaultHelp = new Help();
  const optionDescription = (option: Option): string =>
    `${defaultHelp.optionDescription(option)}${option.mandatory ? " (required)" : ""}`;
  program.configureHelp({ optionDescription });
  const byWords = new Map<string, Command>([["", program]]);
  const add = (words: string, does: string): Command => {
    const [last, ...parentWords] = words.split(" ").reverse() as [string, ...string[]];
    const parent = byWords.get(parentWords.join(" ")) ?? add(parentWords.join(" "), GROUPS[parentWords.join(" ")]!);
    const command = parent.command(last).description(does);
    byWords.set(words, command.configureHelp({ optionDescription }));
    return command;
  };
  for (const [words, row] of ROWS) {
    const command = add(words, row.does);
    for (const arg of row.args?.split(" ") ?? []) {
      const parseValue = VALUE_PARSERS[arg.slice(1, -1)];
      if (parseValue) command.argument(arg, "", parseValue);
      else command.argument(arg);
    }
    for (const [flags, definition] of Object.entries(row.options ?? {}))
      command.addOption(createOption(flags, definition));
    if (row.json !== false) command.addOption(new Option("--json", "print JSON for scripts"));
    command.addHelpText("after", helpAfterOptions(words, row));
    command.action(() => run(words, row, command, context));
  }
}
