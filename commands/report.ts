import { systemClock } from "../infra/clock.ts";
import { toPrintable } from "../infra/printable.ts";
import { untilStopped } from "./exit.ts";
import { print } from "./printer.ts";

/** Options of every command that runs a role. */
export interface RoleOptions {
  once?: boolean;
  json?: boolean;
}

/**
 * Starts a stopwatch: returns a function that returns the seconds since then.
 * @param decimals number of decimals to which the seconds are rounded
 */
export function stopwatch(decimals = 2): () => number {
  const startedAt = systemClock.monotonic();
  return () => Number(((systemClock.monotonic() - startedAt) / 1000).toFixed(decimals));
}

/**
 * Formats rows as columns, each as wide as its widest cell, two blanks apart. Unprintable characters are replaced
 * first, so that widths match what is printed.
 */
export function columns(cells: readonly (readonly string[])[]): string[] {
  const rows = cells.map((row) => row.map(toPrintable));
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd(),
  );
}

/** Prints the address of a role's status listener, if it has one. */
export function printStatus({ url }: { url: string | null }, options: RoleOptions): void {
  if (url !== null) print(options, { status: url }, [`Status at ${url}/health`]);
}

/** Prints the addresses of a service and of its status listener. */
export function printServing(
  { url, status }: { url: string; status: { url: string | null } },
  options: RoleOptions,
): void {
  print(options, { serving: url }, [`Serving at ${url}`]);
  printStatus(status, options);
}

/** Prints the result of one turn of a role: JSON for a script; for people, names with values, and the next command. */
export function report(options: RoleOptions, facts: Record<string, unknown>, next: string): void {
  const words = Object.entries(facts).flatMap(([name, value]) => (isEmpty(value) ? [] : [`${name} ${textOf(value)}`]));
  print(options, facts, [words.join(", ") || "nothing was due", `next: ${next}`]);
}

/** Is the value null, zero or empty? Then it is left out in the output for people. */
const isEmpty = (value: unknown): boolean =>
  value === null ||
  value === 0 ||
  value === undefined ||
  (typeof value === "object" && Object.keys(value).length === 0);

const textOf = (value: unknown): string => {
  if (Array.isArray(value)) return value.map(textOf).join(" ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .map(([name, member]) => `${name}=${textOf(member)}`)
    .join(" ");
};

/** Runs `work` once with --once; otherwise again and again, with a pause of `seconds`, until a stop signal. */
export async function repeat(options: RoleOptions, seconds: number, work: () => Promise<void>): Promise<void> {
  let isStopped = false;
  const stopPromise = untilStopped().then(() => {
    isStopped = true;
  });
  do {
    await work();
    if (options.once) return;
    const pause = new AbortController();
    await Promise.race([stopPromise, systemClock.sleep(seconds * 1000, pause.signal)]);
    pause.abort();
  } while (!isStopped);
}
