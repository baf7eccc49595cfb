import { systemClock } from "../infra/clock.ts";
import { printable } from "../infra/printable.ts";
import { untilStopped } from "./exit.ts";
import { print } from "./printer.ts";

export interface RoleOptions {
  once?: boolean;
  json?: boolean;
}

/** Columns as wide as their widest cell, apart by two blanks; cells are cleaned first, as their width is of what is printed. */
export function columns(cells: readonly (readonly string[])[]): string[] {
  const rows = cells.map((row) => row.map(printable));
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd(),
  );
}

/** One line about where the status listener of a role is, for a person or a machine; none where there is none. */
export function sayStatus({ url }: { url: string | null }, json: boolean | undefined): void {
  if (url !== null) print({ json }, { status: url }, [`Status at ${url}/health`]);
}

/** Print what was done: JSON for a machine, else `name: value` and where to look next. */
export function report(options: RoleOptions, done: Record<string, unknown>, next: string): void {
  const words = Object.entries(done).flatMap(([name, value]) => (isNothing(value) ? [] : [`${name} ${wordOf(value)}`]));
  print(options, done, [words.join(", ") || "nothing was due", `next: ${next}`]);
}

/** Nothing was done, found or left: no line of a report for people. */
const isNothing = (value: unknown): boolean =>
  value === null ||
  value === 0 ||
  value === undefined ||
  (typeof value === "object" && Object.keys(value).length === 0);

const wordOf = (value: unknown): string => {
  if (Array.isArray(value)) return value.map(wordOf).join(" ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .map(([name, of]) => `${name}=${wordOf(of)}`)
    .join(" ");
};

/** Run the work once, or again every `seconds` until stopped. */
export async function repeat(options: RoleOptions, seconds: number, work: () => Promise<void>): Promise<void> {
  let over = false;
  const stop = untilStopped().then(() => {
    over = true;
  });
  do {
    await work();
    if (options.once) return;
    const pause = new AbortController();
    await Promise.race([stop, systemClock.sleep(seconds * 1000, pause.signal)]);
    pause.abort();
  } while (!over);
}
