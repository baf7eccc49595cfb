import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { commandsOf, examplesOf, exitsOf, ROWS } from "../../commands/program.ts";
import { EXIT } from "../../infra/errors.ts";
import { program } from "../../touchstone.ts";
import { refuseUnnamedExit } from "../helpers/exit-codes.ts";

/** Every command that is printed anywhere is one: its words, its options and its arguments, as they stand there. */
const ROOT = join(import.meta.dirname, "../..");

// What is wrong is thrown here, not told to a terminal.
for (const command of commandsOf(program)) {
  command.exitOverride((error) => {
    throw error;
  });
  command.configureOutput({ writeErr: () => undefined });
}

/** Words of a line as a shell splits it: quotes hold together, a comment ends it, `\` goes on. */
function split(line: string): string[] {
  const words = line.match(/'[^']*'|"[^"]*"|[^\s'"]+/g) ?? [];
  const end = words.findIndex((word) => /^(?:#|\||&&|;|>|2>)/.test(word));
  return (end < 0 ? words : words.slice(0, end)).map((word) => word.replace(/^['"]|['"]$/g, ""));
}

/** What is wrong with a printed command, or null. */
function wrongWith(line: string): string | null {
  let [command, words]: [Command, string[]] = [program, split(line).slice(1)];
  for (let next = below(command, words[0]); next; next = below(command, words[0])) {
    [command, words] = [next, words.slice(1)];
  }
  if (words.includes("--help") || words.includes("--version")) return null;
  let parsed: ReturnType<Command["parseOptions"]>;
  try {
    parsed = command.parseOptions(words);
  } catch (error) {
    return (error as Error).message;
  }
  const { operands, unknown } = parsed;
  const given = new Set(words.filter((word) => word.startsWith("--")).map((word) => word.split("=")[0]));
  if (unknown.length > 0) return `no option ${unknown[0]}`;
  const required = command.registeredArguments.filter((one) => one.required).length;
  const most = command.registeredArguments.at(-1)?.variadic
    ? Number.POSITIVE_INFINITY
    : command.registeredArguments.length;
  if (operands.length < required || operands.length > most) {
    return `${operands.length} arguments, not ${required}`;
  }
  if (command === program || (command.commands.length > 0 && command.registeredArguments.length + required === 0)) {
    if (!(command as unknown as { _actionHandler: unknown })._actionHandler) return "no word";
  }
  const lacking = command.options.find((option) => option.mandatory && !given.has(option.long!));
  return lacking ? `${lacking.long} is required` : null;
}

const below = (command: Command, word: string | undefined): Command | undefined =>
  command.commands.find((one) => one.name() === word);

/** Lines of code blocks that call the command, continued lines joined, with what they stand on. */
async function printedInDocs(): Promise<[string, string][]> {
  const pages = (await readdir(join(ROOT, "docs"), { recursive: true })).filter((name) => name.endsWith(".md"));
  const found: [string, string][] = [];
  for (const page of [...pages.map((name) => join("docs", name)), "README.md", "CONTRIBUTING.md"]) {
    const text = await readFile(join(ROOT, page), "utf8");
    for (const [, block] of text.matchAll(/^```(?:sh|bash|console|text)?\n(.*?)\n```$/gms)) {
      for (const typed of block!.replaceAll(/\\\n\s*/g, " ").split("\n")) {
        // The user's name is that of the command.
        const line = typed.replace(/^sudo --login --user \S+\s*/, "");
        const called = /(?:^|\s)(?:npm run touchstone -- |npx touchstone |touchstone )(?=[a-z-])(.*)$/.exec(line);
        if (called && !/^\s*#/.test(line)) found.push([page, `touchstone ${called[1]}`]);
      }
    }
  }
  return found;
}

/** Next steps as they stand in the sources of the commands, with a word in the place of what is filled in. */
async function printedByCommands(): Promise<[string, string][]> {
  const found: [string, string][] = [];
  const files = await readdir(join(ROOT, "commands"), { recursive: true });
  for (const name of files.filter((one) => one.endsWith(".ts"))) {
    const code = (await readFile(join(ROOT, "commands", name), "utf8")).split("\n");
    const source = code.filter((line) => !/^\s*(?:\/?\*|\/\/)/.test(line)).join("\n");
    for (const [, step] of source.matchAll(
      /[`"](?:next: |To take it back: |else: )?(touchstone [a-z][^`"\n]*?)(?:\\n)?[`"]/g,
    )) {
      const line = step!.replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, "x").replace(/\).*$/, "");
      found.push([name, line]);
    }
  }
  return found;
}

describe("commands as they are printed", () => {
  const all = commandsOf(program).filter((command) => command.parent !== null);
  const wordsOf = (command: Command): string =>
    command.parent?.parent ? `${wordsOf(command.parent)} ${command.name()}` : command.name();
  const runs = all.filter((command) => (command as unknown as { _actionHandler: unknown })._actionHandler !== null);

  test.each(runs.map((command) => [wordsOf(command), command] as const))(
    "%s has examples, and they run",
    (words, command) => {
      const row = ROWS.find(([known]) => known === words)![1];
      const examples = examplesOf(words, row);
      expect(examples).not.toEqual([]);
      for (const line of examples) {
        expect([line, line.startsWith(`touchstone ${words}`), wrongWith(line)]).toEqual([line, true, null]);
      }
      let shown = "";
      command.configureOutput({
        writeOut: (text) => {
          shown += text;
        },
      });
      command.outputHelp();
      expect(shown).toContain(`Examples:\n  ${examples[0]}`);
      expect(shown).toContain(`Prints ${row.prints}.\nMore: docs/${row.page}.md`);
      for (const name of exitsOf(row)) expect(shown).toMatch(new RegExp(`^ {2}${EXIT[name]} ${name} `, "m"));
      for (const { long } of command.options.filter(({ mandatory }) => mandatory)) {
        expect(shown).toMatch(new RegExp(`${long}.*(?:\\n\\s.*)*?\\(required\\)`));
      }
    },
  );

  test("every command in a code block of the documentation", async () => {
    const printed = await printedInDocs();
    expect(printed.length).toBeGreaterThan(15);
    const wrong = printed.flatMap(([page, line]) => (wrongWith(line) ? [[page, line, wrongWith(line)]] : []));
    expect(wrong).toEqual([]);
  });

  test("every next step that a command prints", async () => {
    const printed = await printedByCommands();
    expect(printed.length).toBeGreaterThan(10);
    const wrong = printed.flatMap(([name, line]) => (wrongWith(line) ? [[name, line, wrongWith(line)]] : []));
    expect(wrong).toEqual([]);
  });

  test("every exit code is one of a command, and a process that ends with another's is refused", () => {
    expect(new Set(ROWS.flatMap(([, row]) => exitsOf(row)))).toEqual(new Set(Object.keys(EXIT)));
    expect(() => refuseUnnamedExit(["-c", "file", "archive", "supersede", "x"], EXIT.already)).not.toThrow();
    expect(() => refuseUnnamedExit(["archive", "--once"], EXIT.already)).toThrow("commands/table.ts");
    expect(() => refuseUnnamedExit(["archive", "--once"], 99)).toThrow("commands/table.ts");
  });

  test("a word, an option or an argument that is none is noticed", () => {
    expect(wrongWith("touchstone mirrors x y")).not.toBeNull();
    expect(wrongWith("touchstone mirror x")).toBe("1 arguments, not 2");
    expect(wrongWith("touchstone mirror x y --nothing")).toBe("no option --nothing");
    expect(wrongWith("touchstone correct x --says y")).toBe("--fault is required");
  });
});
