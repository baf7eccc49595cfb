import type { FailureCode } from "../infra/errors.ts";

/** An option that needs more than flags and a description. */
export interface OptionRow {
  /** Description of the option, for `--help`. */
  means: string;
  required?: true;
  /** The option may be given several times, and its value is a list. */
  repeated?: true;
  default?: string | number;
  choices?: readonly string[];
  /** Name of the environment variable of the setting that the option overrides. */
  setting?: string;
}

/** One command of the command line: a row of the table in table.ts. */
export interface CommandRow {
  /**
   * The command's arguments, each in angle brackets. The value of `<day>` is a UTC day; the last argument may be a
   * list, `<source...>`.
   */
  args?: string;
  /** What the command does, for `--help`. */
  does: string;
  /**
   * The command's options by their flags. A value `<n>`, `<seconds>` or `<fd>` is a whole number, `<date>` a UTC day.
   */
  options?: Readonly<Record<string, string | OptionRow>>;
  /** false: the command has no `--json`. */
  json?: false;
  /** What the command prints on stdout. */
  prints: string;
  /** Failure codes of the command, besides `failed` and `usage`, which every command has. */
  exits: readonly FailureCode[];
  /** Name of the page of docs/ about the command, without `.md`. */
  page: string;
  /** Text below the options in `--help`. */
  notes?: string;
  /** Arguments and options of each example; default: one example without any. */
  examples?: readonly string[];
  /**
   * What the function of the command gets besides arguments and options. `settings` (default): the settings, as first
   * argument. `market`: the settings, and the path of the demo's script as an option. `record`: a function that reads
   * the settings, as an option; the command calls it only if it needs them, such as for a record in a bucket.
   * `nothing`: no settings.
   */
  opens?: "settings" | "market" | "record" | "nothing";
}

type Camel<Words extends string> = Words extends `${infer First}-${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : Words;

/** Name of the property for an option: `maxAge` for `--max-age <seconds>`, and also for `--no-max-age`. */
type NameIn<Flags> = Flags extends `--no-${infer Name}`
  ? Camel<Name>
  : Flags extends `--${infer Name} <${string}`
    ? Camel<Name>
    : Flags extends `--${infer Name}`
      ? Camel<Name>
      : never;

type ValueIn<Flags, Definition> = Definition extends { choices: readonly (infer Choice)[] }
  ? Choice
  : Definition extends { repeated: true }
    ? string[]
    : Flags extends `${string}...>`
      ? string[]
      : Flags extends `${string} <n>` | `${string} <seconds>` | `${string} <fd>`
        ? number
        : Flags extends `${string}>`
          ? string
          : boolean;

type IsAlwaysThere<Definition> = Definition extends { required: true } | { repeated: true } | { default: unknown }
  ? true
  : false;

type Optional<Options> = {
  [Flags in keyof Options as IsAlwaysThere<Options[Flags]> extends true ? never : NameIn<Flags>]?: ValueIn<
    Flags,
    Options[Flags]
  >;
};
type AlwaysThere<Options> = {
  [Flags in keyof Options as IsAlwaysThere<Options[Flags]> extends true ? NameIn<Flags> : never]: ValueIn<
    Flags,
    Options[Flags]
  >;
};

type OptionsIn<Row> = Row extends { options: infer Options } ? Optional<Options> & AlwaysThere<Options> : unknown;
type JsonIn<Row> = Row extends { json: false } ? unknown : { json?: boolean };

/** Type of the options of a row, as the function of the command gets them. */
export type OptionsOfRow<Row> = OptionsIn<Row> & JsonIn<Row>;

type ArgsIn<Args> = Args extends `<${string}> ${infer Rest}`
  ? [string, ...ArgsIn<Rest>]
  : Args extends `<${string}...>`
    ? [string[]]
    : Args extends string
      ? [string]
      : [];

/** Types of the arguments of a row, as the function of the command gets them. */
export type ArgsOfRow<Row> = Row extends { args: infer Args } ? ArgsIn<Args> : [];
