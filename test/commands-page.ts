import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { EXIT } from "../commands/exit.ts";
import type { CommandRow } from "../commands/program.ts";
import { COMMANDS } from "../commands/table.ts";

/**
 * The tables of `docs/commands.md`, made from the table of the commands and from the exit codes with the comments above
 * them. A test holds the page against this; `npx tsx test/commands-page.ts` writes it anew.
 */
const ROOT = resolve(import.meta.dirname, "..");
export const PAGE = join(ROOT, "docs/commands.md");

const cell = (text: string): string => text.replaceAll("|", "\\|");

const PAGE_AT_END = /[;:] docs\/([\w-]+)\.md$/;

/** What a command does, with the page that it or the name above it ends with. */
function saysOf({ says, words }: CommandRow): string {
  const above = COMMANDS.find((row) => !row.run && row.words === words.split(" ")[0]);
  const page = PAGE_AT_END.exec(says)?.[1] ?? PAGE_AT_END.exec(above?.says ?? "")?.[1];
  const text = cell(says.replace(PAGE_AT_END, "")).replaceAll(/<\w+>[\w/]*/g, "`$&`");
  if (page === undefined) return text;
  if (!existsSync(join(ROOT, "docs", `${page}.md`))) throw new Error(`no page docs/${page}.md`);
  return `${text}: [${page}](/docs/${page})`;
}

const optionsOf = ({ options = {} }: CommandRow): string =>
  cell(
    Object.entries(options)
      .map(([flags, told]) => `\`${flags}\`${typeof told !== "string" && told.required ? " (required)" : ""}`)
      .join(", "),
  );

const commandRows = (): string[] =>
  COMMANDS.filter(({ run }) => run).map((row) => `| \`${cell(row.words)}\` | ${saysOf(row)} | ${optionsOf(row)} |`);

/** Code, name, and the comment above it. */
function exitRows(): string[] {
  const source = readFileSync(join(ROOT, "infra/errors.ts"), "utf8");
  const says = new Map(
    [...source.matchAll(/\/\*\* (.*) \*\/\n {2}(\w+): \d+,/g)].map(([, text, name]) => [name, text]),
  );
  return Object.entries(EXIT).map(([name, code]) => {
    const text = name === "ok" ? "It is done." : says.get(name);
    if (text === undefined) throw new Error(`exit code without a comment in infra/errors.ts: ${name}`);
    return `| ${code} | \`${name}\` | ${cell(text)} |`;
  });
}

/** The page with its two tables made anew; the words around them are written by hand. */
export function commandsPage(): string {
  const tables = [
    ["| command | what it does | options |", commandRows()],
    ["| code | name | when |", exitRows()],
  ] as const;
  return tables.reduce(
    (page, [head, rows]) => {
      const ruler = head.replaceAll(/[^|]+/g, "---");
      const at = page.indexOf(`${head}\n`);
      if (at < 0) throw new Error(`docs/commands.md has no table ${head}`);
      return page.slice(0, at) + page.slice(at).replace(/(?:\|.*\n)+/, () => `${[head, ruler, ...rows].join("\n")}\n`);
    },
    readFileSync(PAGE, "utf8"),
  );
}

if (process.argv[1] === import.meta.filename) writeFileSync(PAGE, commandsPage());
