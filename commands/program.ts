import { type Command, Help, InvalidArgumentError, Option } from "commander";
import type { Config } from "../infra/config.ts";

/**
 * What a command is given beside its arguments and options. `settings`: the settings, before them. `market`: the demo's
 * script as well, among the options. `record`: a function that reads the settings, among the options; a record that is
 * named needs them only where it is in a bucket.
 */
type Opens = "settings" | "market" | "record" | "nothing";

/** An option that is more than flags and what they mean. */
interface OptionRow {
  says: string;
  required?: true;
  /** May be given again: the command gets a list. */
  repeated?: true;
  /** Value where it is not given. */
  otherwise?: string | number;
  choices?: readonly string[];
  /** Setting that it stands for, as a variable. */
  sets?: string;
}

/** One command of the command line. A row without `run` is a name above others. */
export interface CommandRow {
  /** The words, then the arguments. */
  words: string;
  says: string;
  /** By flags; a value `<n>`, `<seconds>` or `<fd>` is a whole number, `<date>` a UTC day. */
  options?: Readonly<Record<string, string | OptionRow>>;
  /** false: it prints no JSON, and has no `--json`. */
  json?: false;
  /** Below its options in `--help`. */
  after?: string;
  /** What stands behind the words in each example; default: one with nothing. */
  examples?: readonly string[];
  /** Default: `settings`. */
  opens?: Opens;
  /** Loads the file with the one function that does it: `(settings, ..arguments, options)`. */
  run?(): Promise<(...given: never[]) => unknown>;
}

function wholeNumber(text: string): number {
  const n = Number(text);
  if (!Number.isInteger(n) || n < 0) throw new InvalidArgumentError("expected a whole number");
  return n;
}

export const DAY_ASKED = "expected a date such as 2026-11-21";

export function isUtcDay(text: string): boolean {
  const at = Date.parse(`${text}T00:00:00.000Z`);
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(at) && new Date(at).toISOString().slice(0, 10) === text;
}

function utcDay(text: string): string {
  if (!isUtcDay(text)) throw new InvalidArgumentError(DAY_ASKED);
  return text;
}

/** How the value of an option is read, by its name in the flags. */
const READ: Record<string, (text: string) => unknown> = {
  n: wholeNumber,
  seconds: wholeNumber,
  fd: wholeNumber,
  date: utcDay,
};

const repeated = (one: string, before: string[]): string[] => [...before, one];

const rowOf = (told: string | OptionRow): OptionRow => (typeof told === "string" ? { says: told } : told);

function optionOf(flags: string, told: string | OptionRow): Option {
  const row = rowOf(told);
  const option = new Option(flags, row.says).makeOptionMandatory(row.required === true);
  const read = READ[/<(\w+)>/.exec(flags)?.[1] ?? ""];
  if (read) option.argParser(read);
  if (row.choices) option.choices(row.choices);
  if (row.otherwise !== undefined) option.default(row.otherwise);
  return row.repeated ? option.argParser(repeated).default([]) : option;
}

/** The words of a row without its arguments. */
export const wordsIn = ({ words }: CommandRow): string => words.replace(/ <.*/, "");

/** Examples of a row, as they run. A name above others has none. */
export const examplesOf = (row: CommandRow): string[] =>
  row.run ? (row.examples ?? [""]).map((rest) => `touchstone ${wordsIn(row)} ${rest}`.trimEnd()) : [];

/** Every command below, itself included. */
export const commandsOf = (command: Command): Command[] => [command, ...command.commands.flatMap(commandsOf)];

/** Options as the settings that they stand for. */
function settingsAmong({ options = {} }: CommandRow, command: Command): Record<string, string> {
  const sets = Object.entries(options).flatMap(([flags, told]) => {
    const value: unknown = command.opts()[new Option(flags).attributeName()];
    const name = rowOf(told).sets;
    return name && value ? [[name, String(value)]] : [];
  });
  return Object.fromEntries(sets);
}

/** What the front door finds for its commands. */
interface Found {
  /** Reads the settings. @param given those of the command line, as the variables that they stand for */
  settings(given?: Record<string, string>): Config;
  /** The script of the demo's world. */
  worldScript: string;
}

async function runRow(row: CommandRow, command: Command, { settings, worldScript }: Found): Promise<void> {
  const run = (await row.run!()) as (...given: unknown[]) => unknown;
  // A name that stands before another word takes the options that both have: `archive supersede --json`.
  const options = command.optsWithGlobals();
  const args = command.processedArgs;
  if (row.opens === "market") Object.assign(options, { worldScript });
  if (row.opens === "nothing") await run(...args, options);
  else if (row.opens === "record") await run(...args, { ...options, settings });
  else await run(settings(settingsAmong(row, command)), ...args, options);
}

/** The commands of these rows below the program, with its examples, and required options marked as such. */
export function addCommands(program: Command, rows: readonly CommandRow[], found: Found): void {
  const plain = new Help();
  const optionDescription = (option: Option): string =>
    `${plain.optionDescription(option)}${option.mandatory ? " (required)" : ""}`;
  program.configureHelp({ optionDescription });
  const named = new Map<string, Command>([["", program]]);
  for (const row of rows) {
    const words = wordsIn(row).split(" ");
    const last = words.pop()!;
    const command = named.get(words.join(" "))!.command(last + row.words.slice(wordsIn(row).length));
    named.set(wordsIn(row), command.description(row.says).configureHelp({ optionDescription }));
    for (const [flags, told] of Object.entries(row.options ?? {})) command.addOption(optionOf(flags, told));
    if (!row.run) continue;
    if (row.json !== false) command.addOption(new Option("--json", "print JSON for scripts"));
    if (row.after) command.addHelpText("after", `\n${row.after}`);
    command.addHelpText(
      "after",
      `\nExamples:\n${examplesOf(row)
        .map((one) => `  ${one}`)
        .join("\n")}`,
    );
    command.action(() => runRow(row, command, found));
  }
}
