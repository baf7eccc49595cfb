import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { KNOWN_CATALOGUES } from "../infra/catalogues.ts";
import { ConfigError, problemsIn, Settings, settingsFile } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { createPrivateFile, replacePrivateFile } from "../infra/keys/files.ts";
import { nodeHostOf, paidNetworks, soldNetwork } from "../infra/rails/networks.ts";
import { canAsk, openDialogue, print, say } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** The answers from which the settings are made, each given as an option or typed at a terminal. */
export type Answers = Partial<Pick<OptionsOf<"init">, "name" | "network" | "rpc" | "control" | "catalogue" | "sell">>;

/** A question for the terminal. */
interface Question {
  /** The options that hold the answer to this question; the question is asked if one of them is missing. */
  options: readonly (keyof Answers)[];
  text: string;
  /** The answer that an empty line stands for. */
  default?: string;
  /** Converts the typed line to answers; returns none if the line cannot be read. */
  read(line: string): Answers;
}

const splitWords = (line: string): string[] => line.split(/[\s,]+/).filter(Boolean);

const QUESTIONS: readonly Question[] = [
  {
    options: ["name"],
    text: "Host name or url at which others reach this service, such as record.example (it cannot be changed later)",
    read: (name) => ({ name }),
  },
  {
    options: ["network", "rpc"],
    text: "Network on which calls are paid, and two or more of its nodes, of different operators: eip155:8453 https://.. https://..",
    read: (line) => ({ network: splitWords(line)[0] ?? "", rpc: splitWords(line).slice(1) }),
  },
  {
    options: ["control"],
    text: "Two or three addresses on other people's machines that are always up: https://one.example/ https://..",
    read: (line) => ({ control: splitWords(line) }),
  },
  {
    options: ["catalogue"],
    text: `Catalogues from which listings are read: addresses, or known names (${Object.keys(KNOWN_CATALOGUES).join(", ")})`,
    default: "none",
    read: (line) => ({ catalogue: line === "none" ? [] : splitWords(line) }),
  },
  {
    options: ["sell"],
    text: "Sell calls and the service's own work on that network, yes or no",
    default: "no",
    read: (line) => (/^y(?:es)?$/i.test(line) ? { sell: true } : /^no?$/i.test(line) ? { sell: false } : {}),
  },
];

/** Maps the path of a setting to the option from which that setting is made. */
const OPTION_OF_SETTING: readonly [RegExp, keyof Answers][] = [
  [/^base_url/, "name"],
  [/^networks\.0\.rpc_urls|^chain\.rpc_url/, "rpc"],
  [/^networks/, "network"],
  [/^control_urls/, "control"],
  [/^catalogues/, "catalogue"],
  [/^sell/, "sell"],
];

/**
 * Returns the settings for these answers. If there are several nodes, all on different hosts, two of them must agree.
 * A name without a scheme gets https.
 */
export function settingsOf({ name = "", network = "", rpc = [], control = [], catalogue = [], sell = false }: Answers) {
  const agree = new Set(rpc.map(nodeHostOf)).size === rpc.length && rpc.length > 1 ? 2 : 1;
  return {
    base_url: name.includes("://") ? name : `https://${name}`,
    networks: [{ id: network, rpc_urls: rpc, agree }],
    control_urls: control,
    catalogues: catalogue,
    ...(sell ? { sell: { network } } : {}),
  };
}

/** Returns the problems of these answers, each with the option to change. */
export function problemsOf(answers: Answers): { option: keyof Answers; says: string }[] {
  const settings = settingsOf(answers);
  const problems = problemsIn(settings);
  if (problems.length === 0) problems.push(...combinedProblems(settings));
  if (settings.control_urls.length === 0)
    problems.push({ at: "control_urls", says: "name at least one address: without one nothing is paid" });
  return problems.map(({ at, says }) => ({
    option: OPTION_OF_SETTING.find(([pattern]) => pattern.test(at))?.[1] ?? "name",
    says,
  }));
}

/**
 * Returns problems of settings that are valid one by one but not together. With such a problem, a role that pays or
 * sells would refuse to start. `at`: path of the setting.
 */
function combinedProblems(settings: ReturnType<typeof settingsOf>): { at: string; says: string }[] {
  const config = Settings.parse(settings);
  try {
    paidNetworks(config);
    soldNetwork(config);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.map((one) => {
      const [at = "", ...rest] = one.split(": ");
      return { at, says: rest.join(": ") };
    });
  }
}

/** Number of times that a question is asked until the command ends for want of a valid answer. */
const MAX_TRIES = 5;

const isGiven = (answers: Answers, option: keyof Answers): boolean => {
  const value = answers[option];
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
};

const mustAsk = ({ options }: Question, answers: Answers): boolean => !options.every((one) => isGiven(answers, one));

/**
 * Asks for the answers that the options lack, one question after the other.
 * @throws ConfigError when the input ends, or after too many invalid answers to one question
 */
async function askMissing(givenAnswers: Answers): Promise<Answers> {
  const answers = { ...givenAnswers };
  const terminal = await openDialogue();
  try {
    for (const question of QUESTIONS.filter((one) => mustAsk(one, givenAnswers))) {
      const { text, default: defaultAnswer, options } = question;
      const notAnswered = new ConfigError([`${options.map(optionFlag).join(", ")}: not answered`]);
      for (let tries = 1; ; tries++) {
        const line = await terminal.ask(`${text}${defaultAnswer ? ` [${defaultAnswer}]` : ""}: `);
        if (line === null) throw notAnswered;
        const answer = question.read(line || (defaultAnswer ?? ""));
        Object.assign(answers, answer);
        const problems = problemsOf(answers).filter(({ option }) => options.includes(option));
        if (problems.length === 0 && Object.keys(answer).length > 0) break;
        say(problems.length > 0 ? problems.map(({ says }) => `  ${says}`) : "  answer yes or no");
        if (tries === MAX_TRIES) throw notAnswered;
      }
    }
  } finally {
    terminal.close();
  }
  return answers;
}

const optionFlag = (option: keyof Answers): string => `--${option}`;

/**
 * Checks that the options hold the answers, since there is no terminal to ask at. Catalogues and selling may be left
 * out.
 * @throws ConfigError
 */
function requireAll(answers: Answers): void {
  const missingOptions = (["name", "network", "rpc", "control"] as const).filter((one) => !isGiven(answers, one));
  if (missingOptions.length > 0)
    throw new ConfigError(
      missingOptions.map((one) => `${optionFlag(one)}: is missing, and there is no terminal to ask at`),
    );
}

/**
 * `touchstone init`: writes a settings file. It takes the answers from the options, and asks for missing ones at a
 * terminal unless --json is given. Only the owner can read the file, since addresses of nodes may contain keys. Without
 * --force an existing file is not overwritten.
 * @throws Failure `already`; ConfigError naming every wrong option
 */
export async function initCommand(options: OptionsOf<"init"> & { config?: string }): Promise<void> {
  const { config: configOption } = options;
  const file = settingsFile(configOption);
  if (existsSync(file) && !options.force)
    throw new Failure(
      "already",
      `${file} exists and is not overwritten: name another file with --config, or give --force`,
    );
  if (!existsSync(dirname(file))) throw new ConfigError([`${file}: there is no folder ${dirname(file)}`]);
  const willAsk = canAsk() && !options.json && QUESTIONS.some((one) => mustAsk(one, options));
  if (!willAsk) requireAll(options);
  const answers = willAsk ? await askMissing(options) : options;
  const problems = problemsOf(answers);
  if (problems.length > 0) throw new ConfigError(problems.map(({ option, says }) => `${optionFlag(option)}: ${says}`));
  const text = `${JSON.stringify(settingsOf(answers), null, 2)}\n`;
  if (options.force) replacePrivateFile(file, text);
  else createPrivateFile(file, text);
  const configFlag = configOption === undefined ? "" : ` --config ${configOption}`;
  const next = [
    `touchstone${configFlag} keygen`,
    `touchstone${configFlag} wallets new --blind 20`,
    `touchstone${configFlag} doctor`,
    `touchstone${configFlag} start`,
  ];
  const { agree, rpc_urls } = settingsOf(answers).networks[0]!;
  print(options, { file, agree, next }, [
    `Settings are in ${file}, which only you can read.`,
    agree > 1
      ? `A settlement counts if ${agree} of ${rpc_urls.length} nodes report it.`
      : "A settlement counts if one node reports it. With nodes of two operators, both must report it.",
    "next, in this order:",
    ...next.map((one) => `  ${one}`),
    "Before `start`, send money to the wallets that `wallets new` prints; docs/operate.md has the details.",
  ]);
}
