import type { FailureCode } from "../infra/errors.ts";

/** An option that is more than flags and a meaning. */
export interface OptionRow {
  means: string;
  required?: true;
  /** May be given several times: the command gets a list. */
  repeated?: true;
  default?: string | number;
  choices?: readonly string[];
  /** The setting that it stands for, as an environment variable. */
  setting?: string;
}

/** One command of the command line. */
export interface CommandRow {
  /** Arguments, each in angle brackets. `<day>` is a UTC day; the last may be a list, `<source...>`. */
  args?: string;
  does: string;
  /** By flags. A value `<n>`, `<seconds>` or `<fd>` is a whole number, `<date>` a UTC day. */
  options?: Readonly<Record<string, string | OptionRow>>;
  /** false: it prints no JSON, and has no `--json`. */
  json?: false;
  /** What stands on stdout. */
  prints: string;
  /** Causes of failure that a script may want to tell apart, beside `failed` and `usage`, which any command has. */
  exits: readonly FailureCode[];
  /** The page of docs/ that explains it. */
  page: string;
  /** Below the options in `--help`. */
  notes?: string;
  /** What follows the words in each example; default: one example with nothing. */
  examples?: readonly string[];
  /**
   * What its function gets beside arguments and options. `settings` (default): the settings, as first argument. `market`: the
   * settings, and the demo's script among the options. `record`: a function that reads the settings, among the options: a
   * record needs them only where it is in a bucket. `nothing`: it reads no settings.
   */
  opens?: "settings" | "market" | "record" | "nothing";
}

type Camel<Words extends string> = Words extends `${infer First}-${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : Words;

/** `--max-age <seconds>` is `maxAge`, and so is `--no-max-age`. */
type NameIn<Flags> = Flags extends `--no-${infer Name}`
  ? Camel<Name>
  : Flags extends `--${infer Name} <${string}`
    ? Camel<Name>
    : Flags extends `--${infer Name}`
      ? Camel<Name>
      : never;

type ValueIn<Flags, Told> = Told extends { choices: readonly (infer Choice)[] }
  ? Choice
  : Told extends { repeated: true }
    ? string[]
    : Flags extends `${string}...>`
      ? string[]
      : Flags extends `${string} <n>` | `${string} <seconds>` | `${string} <fd>`
        ? number
        : Flags extends `${string}>`
          ? string
          : boolean;

type IsAlwaysThere<Told> = Told extends { required: true } | { repeated: true } | { default: unknown } ? true : false;

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

/** The options of a row as its function gets them. */
export type OptionsOfRow<Row> = OptionsIn<Row> & JsonIn<Row>;

type ArgsIn<Args> = Args extends `<${string}> ${infer Rest}`
  ? [string, ...ArgsIn<Rest>]
  : Args extends `<${string}...>`
    ? [string[]]
    : Args extends string
      ? [string]
      : [];

/** Arguments of a row as its function gets them. */
export type ArgsOfRow<Row> = Row extends { args: infer Args } ? ArgsIn<Args> : [];
