import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { EXIT, EXIT_MEANINGS } from "../commands/exit.ts";
import { exitsOf, ROWS } from "../commands/program.ts";
import type { CommandRow } from "../commands/row.ts";

/**
 * The tables of `docs/commands.md`, made from the table of the commands and from that of the exit codes. A test compares the
 * page with this; `npx tsx test/commands-page.ts` writes it again.
 */
const ROOT = resolve(import.meta.dirname, "..");
export const PAGE = join(ROOT, "docs/commands.md");

const cell = (text: string): string => text.replaceAll("|", "\\|");

/** What a command does, with its page, and what it prints. */
function textOf({ page, does, prints }: CommandRow): string {
  if (!existsSync(join(ROOT, "docs", `${page}.md`))) throw new Error(`no page docs/${page}.md`);
  const text = cell(`${does}. Prints ${prints}.`).replaceAll(/<\w+>[\w/]*/g, "`$&`");
  return `${text} [${page}](/docs/${page})`;
}

const optionsOf = ({ options = {} }: CommandRow): string =>
  cell(
    Object.entries(options)
      .map(([flags, told]) => `\`${flags}\`${typeof told !== "string" && told.required ? " (required)" : ""}`)
      .join(", "),
  );

/** Exit codes beside those that any command has. */
const codesOf = (row: CommandRow): string =>
  exitsOf(row)
    .filter((name) => !["ok", "failed", "usage"].includes(name))
    .map((name) => EXIT[name])
    .join(", ");

const commandRows = (): string[] =>
  ROWS.map(([words, row]) => {
    const command = cell([words, row.args ?? ""].join(" ").trim());
    return `| \`${command}\` | ${textOf(row)} | ${optionsOf(row)} | ${codesOf(row)} |`;
  });

const exitRows = (): string[] =>
  Object.entries(EXIT_MEANINGS).map(
    ([name, meaning]) => `| ${EXIT[name as keyof typeof EXIT]} | \`${name}\` | ${cell(meaning)} |`,
  );

/** The page with its two tables made again; the words around them are written by hand. */
export function commandsPage(): string {
  const tables = [
    ["| command | what it does | options | exit codes |", commandRows()],
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
