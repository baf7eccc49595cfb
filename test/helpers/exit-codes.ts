import { EXIT, type ExitName } from "../../commands/exit.ts";
import { exitsOf, ROWS } from "../../commands/program.ts";

/** The row of the command in these arguments: the one with the most words. */
function rowIn(args: readonly string[]) {
  const line = ` ${args.join(" ")} `;
  const found = ROWS.filter(([words]) => line.includes(` ${words} `)).sort(([a], [b]) => b.length - a.length)[0];
  return found?.[1];
}

/**
 * Every process of a test ends with an exit code that the table of the commands has for its command: scripts tell causes
 * apart by it. A process that was killed, or stopped before its command began (130, 143), has none.
 * @throws Error for another code
 */
export function refuseUnnamedExit(args: readonly string[], code: number | null): void {
  const row = rowIn(args);
  if (row === undefined || code === null || code > 128) return;
  const name = (Object.keys(EXIT) as ExitName[]).find((one) => EXIT[one] === code);
  if (name === undefined || !exitsOf(row).includes(name))
    throw new Error(`touchstone ${args.join(" ")} ended with ${code}, which commands/table.ts does not have for it`);
}
